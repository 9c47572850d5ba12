"""Draws `docs/pictures/demo.svg` from a real run of the demonstration: `make picture`, or `python tools/draw_demo.py`.

Both stories of `leasehold demo` are run, and every step of every worker is recorded with its time. The picture shows
the two balances side by side. It moves by CSS alone, fits a light and a dark page, and stands still for readers who
asked their system for less motion. Knows how the demonstration tells its steps; must not know how it makes them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from leasehold.cli import demo
from leasehold.cli.demo import TURNS, UNLUCKY, WORKERS, _Story

__all__ = ["Recording", "Step", "draw", "main", "record"]

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "demo.svg"
WANTED = WORKERS * TURNS
WIDTH, HEIGHT = 900, 440
PANE, CHART, TOP = 400, 150, 112  # the width of a side, the height of its chart, and where it begins
CYCLE, MOVING = 12, 0.6  # seconds until it begins again, and the part of them in which something moves
DELAY = 2  # seconds in which the end is shown first, as it is wherever nothing can move

STYLE = """
svg { --back: #ffffff; --frame: #d0d7de; --bar: #f6f8fa; --text: #1f2328; --soft: #656d76;
  --bad: #cf222e; --good: #1a7f37; --line: #0969da; --pause: #fff1c2; }
@media (prefers-color-scheme: dark) { svg { --back: #0d1117; --frame: #30363d; --bar: #161b22; --text: #e6edf3;
  --soft: #8b949e; --bad: #ff7b72; --good: #56d364; --line: #58a6ff; --pause: #3b3112; } }
text { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; font-size: 13px;
  fill: var(--text); }
.soft { fill: var(--soft); } .bad { fill: var(--bad); } .good { fill: var(--good); }
.title { font-size: 14px; font-weight: 600; } .sum { font-size: 34px; font-weight: 700; } .small { font-size: 11px; }
.curve { fill: none; stroke: var(--line); stroke-width: 2.5; stroke-linejoin: round; }
.window { fill: var(--back); stroke: var(--frame); } .pause { fill: var(--pause); }
.goal { stroke: var(--good); stroke-dasharray: 4 4; } .axis { stroke: var(--frame); }
@media (prefers-reduced-motion: reduce) { * { animation: none !important; } }
"""


@dataclass(frozen=True)
class Step:
    """What one worker said, `seconds` after the story began."""

    seconds: float
    worker: int
    word: str
    balance: int
    fence: int


@dataclass
class Recording:
    """All steps of one story, and how it ended."""

    steps: list[Step] = field(default_factory=list)
    balance: int = 0
    refused: int = 0

    @property
    def wrote(self) -> list[Step]:
        """The additions, in order."""
        return [step for step in self.steps if step.word == "wrote"]

    @property
    def stopped(self) -> Step:
        """The step at which the unlucky worker fell asleep."""
        return next(step for step in self.steps if step.word == "stopped")

    @property
    def woke(self) -> Step:
        """Its first step after that."""
        return next(step for step in self.steps if step.worker == UNLUCKY and step.seconds > self.stopped.seconds)

    @property
    def taken_over(self) -> Step:
        """The first addition of another worker while it slept."""
        return next(step for step in self.wrote if step.worker != UNLUCKY and step.seconds > self.stopped.seconds)


class _Recorder(_Story):
    """Tells a story as the demonstration does, and keeps what it is told."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder, name)
        self.recording = Recording()
        self._begin: float | None = None

    def _show(self, number: int, word: str, balance: int, fence: int) -> None:
        self._begin = self._begin or time.monotonic()  # when the first of them has something to say
        self.recording.steps.append(Step(time.monotonic() - self._begin, number, word, balance, fence))
        super()._show(number, word, balance, fence)


def record(folder: Path, name: str) -> Recording:
    """Run one story, `plain` or `guarded`."""
    demo.PATIENCE = 200.0  # nobody looks on, so a busy host may take its time
    story = _Recorder(folder, name)
    if not story.play():
        raise SystemExit("the workers did not finish in time; try again when the host is less busy")
    story.recording.balance, story.recording.refused = story.balance, story.refused
    return story.recording


# --- the picture


def draw(plain: Recording, guarded: Recording) -> str:
    """Both stories as one SVG."""
    label = f"Two runs of the same work. Without the guard {plain.balance} of {WANTED}, with it {guarded.balance}."
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">',
        f"<title>{label}</title><style>{STYLE}{_reveal()}{_appear()}</style>",
        f'<rect class="window" x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="10"/>',
        f'<path d="M1 36 V11 a10 10 0 0 1 10 -10 H{WIDTH - 11} a10 10 0 0 1 10 10 V36 Z" fill="var(--bar)"/>',
        *(f'<circle cx="{20 + 18 * n}" cy="18" r="5.5" fill="{c}"/>' for n, c in enumerate(DOTS)),
        _text(WIDTH / 2, 23, "leasehold demo", "soft", anchor="middle"),
        _text(24, 62, f"{WORKERS} workers add 1 to a balance under a lock, {TURNS} times each. One of them is paused"
              " for longer than its lease.", "soft"),
        _side(plain, 24, "the lock alone", guarded=False),
        _side(guarded, WIDTH - 24 - PANE, "lock + guard(tx, lease)", guarded=True),
        "</svg>",
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


DOTS = ("#ff5f57", "#febc2e", "#28c840")


def _side(story: Recording, left: float, title: str, *, guarded: bool) -> str:
    """One balance over time, what happened, and the sum."""
    end = story.steps[-1].seconds * 1.05  # with a margin on the right

    def x(seconds: float) -> float:
        return left + 34 + (PANE - 44) * seconds / end

    def y(balance: int) -> float:
        return TOP + CHART * (1 - balance / WANTED)

    base, asleep, awake = TOP + CHART, x(story.stopped.seconds), x(story.woke.seconds)
    points = [f"M{x(0):.1f} {base}"]
    points += [f"H{x(step.seconds):.1f} V{y(step.balance):.1f}" for step in story.wrote]
    good = story.balance == WANTED
    shapes = [
        _text(left, TOP - 18, title, "title"),
        f'<line class="axis" x1="{x(0)}" y1="{base}" x2="{x(end)}" y2="{base}"/>',
        f'<line class="goal" x1="{x(0)}" y1="{y(WANTED)}" x2="{x(end)}" y2="{y(WANTED)}"/>',
        _text(x(0) - 6, y(WANTED) + 4, str(WANTED), "small good", anchor="end"),
        _text(x(0) - 6, base + 4, "0", "small soft", anchor="end"),
        '<g class="reveal">',
        f'<rect class="pause" x="{asleep:.1f}" y="{TOP}" width="{awake - asleep:.1f}" height="{CHART}"/>',
        _text(asleep + 6, TOP + 16, f"worker {UNLUCKY} is paused", "small soft"),
        f'<path class="curve" d="{" ".join(points)}"/>',
        "</g>",
    ]
    for number, (seconds, words, style) in enumerate(_happenings(story, guarded=guarded)):
        shapes.append(_text(left, base + 30 + 20 * number, words, style, shown=seconds / end))
    shapes.append(
        _text(left, HEIGHT - 26, f"{story.balance} of {WANTED}", "sum good" if good else "sum bad", shown=1.0)
    )
    lost = len(story.wrote) - story.balance
    words = "no addition lost" if good else f"{lost} confirmed additions lost"
    shapes.append(_text(left + 186, HEIGHT - 28, words, "good" if good else "bad", shown=1.0))
    return "\n".join(shapes)


def _happenings(story: Recording, *, guarded: bool) -> list[tuple[float, str, str]]:
    """When, what, and in which style."""
    stopped, taken_over, woke = story.stopped, story.taken_over, story.woke
    if guarded:
        last = (f"it writes {stopped.balance + 1}: REFUSED, a newer fence was here", "good")
    else:
        last = (f"it writes {stopped.balance + 1} over {_before(story, woke)}: DAMAGE", "bad")
    return [
        (stopped.seconds, f"worker {stopped.worker} reads {stopped.balance} and is stopped (SIGSTOP)", "soft"),
        (taken_over.seconds, f"its lease runs out; worker {taken_over.worker} goes on", "soft"),
        (woke.seconds, f"worker {woke.worker} wakes up and does not know that it slept", "soft"),
        (woke.seconds, *last),
    ]


def _before(story: Recording, step: Step) -> int:
    """The balance that a write met."""
    return max(other.balance for other in story.wrote if other.seconds < step.seconds)


def _text(x: float, y: float, words: str, style: str, *, anchor: str = "start", shown: float | None = None) -> str:
    """A line; `shown`: after which part of the story it appears."""
    when = "" if shown is None else f' style="animation-name:t{round(shown * 10)}"'
    kinds = style if shown is None else f"{style} late"
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kinds}" text-anchor="{anchor}"{when}>{escape(words)}</text>'


def _reveal() -> str:
    """The curves come from the left."""
    return (
        f".reveal {{ animation: reveal {CYCLE}s linear {DELAY}s infinite; }}\n"
        f"@keyframes reveal {{ 0% {{ clip-path: inset(0 100% 0 0); }} {MOVING:.0%} {{ clip-path: inset(0 0 0 0); }}"
        " 100% { clip-path: inset(0 0 0 0); } }\n"
    )


def _appear() -> str:
    """Lines appear when the curve has come to what they tell."""
    rules = [f".late {{ animation: {CYCLE}s linear {DELAY}s infinite; }}"]
    for tenth in range(11):
        begin = tenth * MOVING * 10
        rules.append(
            f"@keyframes t{tenth} {{ 0%, {begin:g}% {{ opacity: 0; }} {begin + 2:g}%, 100% {{ opacity: 1; }} }}"
        )
    return "\n".join(rules)


def main() -> int:
    """Run both stories, and write the picture."""
    with tempfile.TemporaryDirectory(prefix="leasehold-picture-") as folder:
        plain, guarded = record(Path(folder), "plain"), record(Path(folder), "guarded")
    if plain.balance == WANTED or guarded.balance != WANTED:
        print("the stories did not end as they must; nothing was drawn", file=sys.stderr)
        return 1
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(plain, guarded))
    print(f"{PICTURE}: {plain.balance} and {guarded.balance} of {WANTED}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
