"""Sequence diagrams: participants side by side, time from top to bottom."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tools.site.svg import LINE, box, broken, line, picture, text

__all__ = ["draw_sequence"]

APART, EDGE = 170, 88  # from one participant to the next, and from the first to the edge of the picture
PARTICIPANT = re.compile(r"(?:participant|actor) (?P<name>\w+)(?: as (?P<words>.+))?$")
MESSAGE = re.compile(r"(?P<sender>\w+) ?(?P<arrow>--?(?:>>|>|x|\))) ?[+-]?(?P<receiver>\w+) ?: ?(?P<words>.+)$")
NOTE = re.compile(r"[Nn]ote (?:over|left of|right of) (?P<first>\w+)(?:, ?(?P<last>\w+))?: ?(?P<words>.+)$")
FRAME = re.compile(r"(?P<kind>alt|opt|loop|par|critical|break|rect) ?(?P<words>.*)$")
NEXT = re.compile(r"(?:else|and|option) ?(?P<words>.*)$")
SILENT = re.compile(r"(?:activate|deactivate) \w+$|autonumber$")


@dataclass
class _Drawing:
    names: dict[str, str] = field(default_factory=dict)
    below: list[str] = field(default_factory=list)  # frames and lifelines: under everything else
    above: list[str] = field(default_factory=list)
    frames: list[tuple[float, str]] = field(default_factory=list)
    y: float = 0

    def place(self, name: str) -> float:
        """Where a participant's line is; one that was not announced comes to the right of all others."""
        self.names.setdefault(name, name)
        return EDGE + APART * list(self.names).index(name)

    @property
    def width(self) -> float:
        return 2 * EDGE + APART * (len(self.names) - 1)


def draw_sequence(lines: list[str]) -> str:
    """The diagram as SVG."""
    drawing = _Drawing()
    for each in lines:
        if found := PARTICIPANT.match(each):
            drawing.names[found["name"]] = found["words"] or found["name"]
        elif found := MESSAGE.match(each):
            drawing.place(found["sender"])
            drawing.place(found["receiver"])
    heads = {name: broken(words, APART - 40) for name, words in drawing.names.items()}
    top = LINE * max((len(words) for words in heads.values()), default=1) + 14
    drawing.y = top + 12
    for each in lines:
        _draw_line(drawing, each)
    for name, words in heads.items():
        x = drawing.place(name)
        drawing.below.append(line(f"M{x:g} {top}V{drawing.y + 8:g}", "lifeline", ""))
        drawing.above.append(box(words, x, 2, APART - 30, "box actor"))
    title = "Sequence of messages between " + ", ".join(drawing.names.values())
    return picture([*drawing.below, *drawing.above], drawing.width, drawing.y + 12, title)


def _draw_line(drawing: _Drawing, each: str) -> None:
    if PARTICIPANT.match(each) or SILENT.match(each):
        return
    if found := NOTE.match(each):
        _draw_note(drawing, found)
    elif found := MESSAGE.match(each):
        _draw_message(drawing, found)
    elif each == "end" and drawing.frames:
        _close_frame(drawing)
    elif found := NEXT.match(each):
        _divide_frame(drawing, found["words"])
    elif found := FRAME.match(each):
        drawing.frames.append((drawing.y, found["words"]))
        drawing.y += LINE + 10 if found["words"] and found["kind"] != "rect" else 8
    else:
        raise ValueError(f"this line of a sequence diagram is not known to the site: {each!r}")


def _draw_message(drawing: _Drawing, found: re.Match[str]) -> None:
    here, there = drawing.place(found["sender"]), drawing.place(found["receiver"])
    style = "line dashed" if found["arrow"].startswith("--") else "line"
    head = "cross" if found["arrow"].endswith("x") else "arrow"
    if here == there:
        words = broken(found["words"], APART - 50)
        drawing.above.append(text(words, here + APART / 2 + 8, drawing.y + 16, "message"))
        drawing.above.append(line(f"M{here:g} {drawing.y + 8:g}h26v22h-24", style, head))
        drawing.y += max(44, LINE * len(words) + 20)
        return
    words = broken(found["words"], abs(there - here) - 16)
    drawing.above.append(text(words, (here + there) / 2, drawing.y + 14, "message"))
    drawing.y += LINE * len(words) + 6
    stop = (here + there) / 2 if head == "cross" else there - (2 if there > here else -2)
    drawing.above.append(line(f"M{here:g} {drawing.y:g}H{stop:g}", style, head))
    drawing.y += 14


def _draw_note(drawing: _Drawing, found: re.Match[str]) -> None:
    first, last = drawing.place(found["first"]), drawing.place(found["last"] or found["first"])
    width = abs(last - first) + APART - 20
    words = broken(found["words"], width - 12)
    drawing.above.append(box(words, (first + last) / 2, drawing.y, width, "box note"))
    drawing.y += LINE * len(words) + 26


def _close_frame(drawing: _Drawing) -> None:
    top, words = drawing.frames.pop()
    inset = 4 + 6 * len(drawing.frames)
    shape = f'x="{inset}" y="{top:g}" width="{drawing.width - 2 * inset:g}" height="{drawing.y - top:g}" rx="4"'
    drawing.below.append(f'<rect class="frame" {shape}/>')
    if words:
        drawing.above.append(text([words], drawing.width / 2, top + 16, "faint"))
    drawing.y += 12


def _divide_frame(drawing: _Drawing, words: str) -> None:
    drawing.below.append(line(f"M4 {drawing.y:g}H{drawing.width - 4:g}", "lifeline", ""))
    drawing.above.append(text([words], drawing.width / 2, drawing.y + 16, "faint"))
    drawing.y += LINE + 10
