"""Pieces of SVG that the diagrams are drawn with. Colours come from the style sheet of the site, by class."""

from __future__ import annotations

import textwrap
from html import escape

__all__ = ["CHARACTER", "LINE", "MARKERS", "box", "broken", "line", "picture", "text"]

CHARACTER, LINE = 7.0, 17  # how wide a letter is at most, on average, and how high a line of text

SMALLEST = 0.69  # to which a picture is made smaller on a narrow screen, before it has to be moved

MARKERS = """<defs>
<marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto-start-reverse">
<path d="M0 0L10 5L0 10z" class="head"/></marker>
<marker id="cross" viewBox="0 0 10 10" refX="5" refY="5" markerWidth="11" markerHeight="11" orient="auto">
<path d="M1 1L9 9M9 1L1 9" class="cross"/></marker>
</defs>"""


def broken(words: str, width: float) -> list[str]:
    """The lines of a text that is `width` wide; `<br/>` breaks a line as well."""
    room = max(8, int(width / CHARACTER))
    parts = words.replace("<br/>", "\n").replace("<br>", "\n").split("\n")
    return [each for part in parts for each in textwrap.wrap(part.strip(), room)] or [""]


def text(lines: list[str], x: float, y: float, style: str = "") -> str:
    """Lines around a middle; `y` is the foot of the first one."""
    spans = "".join(f'<tspan x="{x:g}" y="{y + LINE * at:g}">{escape(each)}</tspan>' for at, each in enumerate(lines))
    return f'<text class="{style}" text-anchor="middle">{spans}</text>'


def box(lines: list[str], x: float, y: float, width: float, style: str = "box") -> str:
    """A box around lines of text; `x` is its middle, `y` its top."""
    height = LINE * len(lines) + 14
    shape = f'<rect class="{style}" x="{x - width / 2:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"/>'
    return shape + text(lines, x, y + 19)


def line(points: str, style: str = "line", head: str = "arrow") -> str:
    """A path, with a head at its end."""
    return f'<path class="{style}" d="{points}"' + (f' marker-end="url(#{head})"/>' if head else "/>")


def picture(parts: list[str], width: float, height: float, label: str) -> str:
    """The whole drawing; on a narrow screen it can be moved sideways."""
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" style="min-width: {width * SMALLEST:g}px"'
    return (
        f'<figure class="diagram" tabindex="0" data-search-exclude><svg {size} role="img" aria-label="{escape(label)}">'
        f"{MARKERS}{''.join(parts)}</svg></figure>"
    )
