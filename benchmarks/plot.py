"""Bars as SVG, written by hand. A picture brings its own ground and colours, for a light and for a dark page.

Each bar stands below its name, so that no name is cut and a telephone shows the whole picture in letters that can be
read.
"""

from __future__ import annotations

import math
import textwrap
from html import escape
from typing import TYPE_CHECKING

from benchmarks.figures import number, times
from benchmarks.harness import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.harness import Row, Table

__all__ = ["draw"]

WIDTH, EDGE, RIGHT = 480, 10, 120  # of the picture; left of everything; of the figures behind the longest bar
BAR, STEP, LINE = 10, 34, 17  # heights: of a bar, of a name with its bar, of a line of text
LETTERS = 62  # of a title, on one line
LOGARITHMIC_FROM = 50  # above this range, short bars could not be told apart
LEGEND = {Role.OURS: "leasehold", Role.PART: "a part of it", Role.FLOOR: "bare calls", Role.PEER: "other libraries"}

_STYLE = """
  .ground { fill: #ffffff } text { fill: #24292f; font: 13px system-ui, sans-serif } .title { font-weight: bold }
  .faint { fill: #57606a } .ours { fill: #0969da } .floor { fill: #8c959f } .peer { fill: #bc4c00 }
  .part { fill: #54aeff } .name { font-size: 12px } .grid { stroke: #d0d7de }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117 } text { fill: #e6edf3 } .faint { fill: #9198a1 } .ours { fill: #4493f8 }
    .floor { fill: #8b949e } .peer { fill: #f0883e } .part { fill: #1f6feb } .grid { stroke: #3d444d }
  }
"""


def draw(tables: Sequence[Table]) -> str:
    """One picture with a panel for each table."""
    roles = [role for role in LEGEND if any(row.role == role for table in tables for row in table.rows)]
    parts, y = _legend(roles), LINE + 16
    for table in tables:
        panel, height = _panel(table, y)
        parts += panel
        y += height
    label = escape("; ".join(table.title for table in tables))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img" aria-label="{label}">'
    ground = f'<rect class="ground" width="{WIDTH}" height="{y}"/>'
    return "\n".join([head, f"<style>{_STYLE}</style>", ground, *parts, "</svg>"]) + "\n"


def _legend(roles: Sequence[Role]) -> list[str]:
    parts, x = [], EDGE
    for role in roles:
        parts.append(f'<rect class="{role}" x="{x}" y="8" width="{BAR}" height="{BAR}" rx="2"/>')
        parts.append(f'<text class="faint" x="{x + 15}" y="17">{LEGEND[role]}</text>')
        x += 32 + 7 * len(LEGEND[role])
    return parts


def _panel(table: Table, top: int) -> tuple[list[str], int]:
    """The panel, and how high it is."""
    figures = [figure for row in table.rows if (figure := table.figure(row)) is not None]
    is_logarithmic = bool(figures) and max(figures) > LOGARITHMIC_FROM * min(figures) > 0
    better = "higher is better" if table.higher_is_better else "lower is better"
    scale = ", logarithmic scale" if is_logarithmic else ""
    parts, y = [], top
    for words in textwrap.wrap(table.title, LETTERS):
        y += LINE
        parts.append(f'<text class="title" x="{EDGE}" y="{y}">{escape(words)}</text>')
    y += LINE
    parts.append(f'<text class="faint" x="{EDGE}" y="{y}">{escape(table.unit)}, {better}{scale}</text>')
    y += 6
    foot = y + STEP * len(table.rows)
    parts.append(f'<path class="grid" d="M{EDGE} {y + 6}V{foot}"/>')
    for place, row in enumerate(table.rows):
        figure = table.figure(row)
        length = 0.0 if figure is None else _length(figure, figures, is_logarithmic=is_logarithmic)
        parts += _bar(row, figure, length, y + STEP * place)
    return parts, foot + 14 - top


def _length(figure: float, figures: Sequence[float], *, is_logarithmic: bool) -> float:
    room = WIDTH - EDGE - RIGHT
    if not is_logarithmic:
        return room * figure / max(*figures, 1e-12)
    lowest = min(figures) / 2  # so that the shortest bar is still a bar
    return room * math.log(figure / lowest) / math.log(max(figures) / lowest)


def _bar(row: Row, figure: float | None, length: float, y: int) -> list[str]:
    name = f'<text class="name" x="{EDGE + 4}" y="{y + 16}">{escape(row.name)}</text>'
    if figure is None:
        return [name, f'<text class="faint name" x="{EDGE + 4}" y="{y + 31}">{escape(row.missing)}</text>']
    ratio = "" if row.ratio is None else f" ({times(row.ratio)})"
    return [
        name,
        f'<rect class="{row.role}" x="{EDGE}" y="{y + 21}" width="{length:.1f}" height="{BAR}" rx="2"/>',
        f'<text class="name" x="{EDGE + length + 6:.1f}" y="{y + 30}">{number(figure)}{ratio}</text>',
    ]
