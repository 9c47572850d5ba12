"""Bars as SVG, written by hand. A picture brings its own ground and colours, for a light and for a dark page."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from benchmarks.figures import number, times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.harness import Row, Table

__all__ = ["draw"]

WIDTH, LEFT, RIGHT, BAR, STEP, HEAD = 760, 270, 120, 14, 22, 44
LOGARITHMIC_FROM = 50  # above this range, short bars could not be told apart

_STYLE = """
  .ground { fill: #ffffff } text { fill: #24292f; font: 12px sans-serif } .title { font-weight: bold }
  .faint { fill: #57606a } .ours { fill: #0969da } .floor { fill: #8c959f } .peer { fill: #bc4c00 }
  .part { fill: #54aeff }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117 } text { fill: #e6edf3 } .faint { fill: #9198a1 } .ours { fill: #4493f8 }
    .floor { fill: #6e7681 } .peer { fill: #f0883e } .part { fill: #1f6feb }
  }
"""


def draw(name: str, tables: Sequence[Table]) -> str:
    """One picture with a panel for each table."""
    parts: list[str] = []
    y = 8
    for table in tables:
        parts += _panel(table, y)
        y += HEAD + STEP * len(table.rows) + 8
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img" aria-label="{escape(name)}">'
    ground = f'<rect class="ground" width="{WIDTH}" height="{y}"/>'
    return "\n".join([head, f"<style>{_STYLE}</style>", ground, *parts, "</svg>"]) + "\n"


def _panel(table: Table, top: int) -> list[str]:
    figures = [figure for row in table.rows if (figure := table.figure(row)) is not None]
    is_logarithmic = bool(figures) and max(figures) > LOGARITHMIC_FROM * min(figures) > 0
    better = "higher is better" if table.higher_is_better else "lower is better"
    scale = ", logarithmic scale" if is_logarithmic else ""
    parts = [
        f'<text class="title" x="12" y="{top + 16}">{escape(table.title)}</text>',
        f'<text class="faint" x="12" y="{top + 32}">{escape(table.unit)}, {better}{scale}</text>',
    ]
    for place, row in enumerate(table.rows):
        figure = table.figure(row)
        length = 0.0 if figure is None else _length(figure, figures, is_logarithmic=is_logarithmic)
        parts += _bar(row, figure, length, top + HEAD + STEP * place)
    return parts


def _length(figure: float, figures: Sequence[float], *, is_logarithmic: bool) -> float:
    room = WIDTH - LEFT - RIGHT
    if not is_logarithmic:
        return room * figure / max(*figures, 1e-12)
    lowest = min(figures) / 2  # so that the shortest bar is still a bar
    return room * math.log(figure / lowest) / math.log(max(figures) / lowest)


def _bar(row: Row, figure: float | None, length: float, y: int) -> list[str]:
    text = f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{escape(row.name)}</text>'
    if figure is None:
        return [text, f'<text class="faint" x="{LEFT}" y="{y + 12}">{escape(row.missing)}</text>']
    ratio = "" if row.ratio is None else f" ({times(row.ratio)})"
    return [
        text,
        f'<rect class="{row.role}" x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2"/>',
        f'<text x="{LEFT + length + 6:.1f}" y="{y + 12}">{number(figure)}{ratio}</text>',
    ]
