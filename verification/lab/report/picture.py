"""A timeline as SVG: a lane for each client, who believed to hold the lock when, and what was done meanwhile."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verification.lab.report.results import Cell

__all__ = ["draw"]

WIDTH, LEFT, RIGHT, TOP = 720, 74, 10, 44
LANE, BAR = 26, 14
LEGEND = (("hold", "believes to hold"), ("fault", "fault"), ("lost", "knows of its loss"), ("refused", "write refused"))
_STYLE = """
  .ground { fill: #ffffff } text { fill: #24292f; font: 12px system-ui, sans-serif } .faint { fill: #57606a }
  .hold { fill: #0969da } .fault { fill: #bf870055 } .lane { stroke: #d0d7de } .lost { fill: #cf222e }
  .refused { fill: #8250df } .ended { fill: #24292f } .title { font-weight: bold }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117 } text { fill: #e6edf3 } .faint { fill: #9198a1 } .hold { fill: #4493f8 }
    .fault { fill: #d2992255 } .lane { stroke: #3d444d } .lost { fill: #f85149 } .refused { fill: #ab7df8 }
    .ended { fill: #e6edf3 }
  }
"""


def draw(cell: Cell, title: str) -> str:
    """The picture of a cell that has a timeline."""
    timeline = cell.timeline
    assert timeline is not None
    lanes = _lanes(timeline)
    height = TOP + LANE * len(lanes) + 34
    scale = (WIDTH - LEFT - RIGHT) / timeline["length"]
    y = {client: TOP + LANE * place for place, client in enumerate(lanes)}
    parts = [f'<text class="title" x="10" y="18">{escape(title)}</text>', *_legend(height)]
    for client, top in y.items():
        parts.append(f'<text x="10" y="{top + 12}">client {client}</text>')
        parts.append(f'<line class="lane" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{top + 20}" y2="{top + 20}"/>')
    for lane, begin, end, what in timeline["faults"]:
        top, tall = (y[lane], LANE - 4) if lane in y else (TOP - 4, LANE * len(lanes))
        parts.append(_bar("fault", LEFT + begin * scale, top - 2, (end - begin) * scale, tall, what))
    for client, begin, end, fence in timeline["holds"]:
        tip = f"client {client}, fence {fence}, {end - begin:.3f} s"
        parts.append(_bar("hold", LEFT + begin * scale, y[client], (end - begin) * scale, BAR, tip))
    parts += [_mark(kind, LEFT + at * scale, y[client]) for client, at, kind in timeline["marks"] if client in y]
    parts.append(f'<text class="faint" text-anchor="end" x="{WIDTH - RIGHT}" y="18">{timeline["length"]:g} s</text>')
    size = f'viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    ground = f'<rect class="ground" width="{WIDTH}" height="{height}"/>'
    return "\n".join([head, f"<style>{_STYLE}</style>", ground, *parts, "</svg>"]) + "\n"


def _lanes(timeline: dict[str, Any]) -> list[int]:
    clients = {entry[0] for entry in [*timeline["holds"], *timeline["marks"]]}
    return sorted(client for client in clients if client)


def _bar(style: str, x: float, y: float, width: float, height: float, tip: str) -> str:
    size = f'x="{x:.1f}" y="{y}" width="{max(width, 1.0):.1f}" height="{height}"'
    return f'<rect class="{style}" {size} rx="2"><title>{escape(tip)}</title></rect>'


def _mark(kind: str, x: float, y: float) -> str:
    top = y - 3
    return (
        f'<path class="{kind}" d="M{x:.1f} {top}l5 -6h-10z" transform="translate(0 4)"><title>{kind}</title></path>'
        f'<rect class="{kind}" x="{x - 0.7:.1f}" y="{top}" width="1.4" height="{BAR + 6}"/>'
    )


def _legend(height: int) -> list[str]:
    parts, x = [], 10
    for style, words in LEGEND:
        parts.append(f'<rect class="{style}" x="{x}" y="{height - 20}" width="10" height="10" rx="2"/>')
        parts.append(f'<text class="faint" x="{x + 15}" y="{height - 11}">{words}</text>')
        x += 40 + 7 * len(words)
    return parts
