"""Mermaid blocks drawn as SVG while the site is built: no script, neither ours nor fetched from elsewhere.

It knows the part of Mermaid's language that our pages use: `sequenceDiagram`, `stateDiagram-v2` and `flowchart TD`. A
line that it does not know stops the build, so that no page shows half a diagram. A forge draws the same blocks itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pymdownx.superfences import SuperFencesException

from tools.site.graph import draw_graph
from tools.site.sequence import draw_sequence

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["draw", "fence"]

KINDS: dict[str, Callable[[list[str]], str]] = {
    "flowchart TD": draw_graph,
    "sequenceDiagram": draw_sequence,
    "stateDiagram-v2": draw_graph,
}


def draw(source: str) -> str:
    """The diagram as SVG, or ValueError."""
    kind, *lines = [line.strip() for line in source.splitlines() if line.strip() and not line.strip().startswith("%%")]
    if kind not in KINDS:
        raise ValueError(f"the site can draw {', '.join(KINDS)}, but not {kind!r}: see tools/site/diagrams.py")
    return KINDS[kind](lines)


def fence(source: str, *_: Any, **__: Any) -> str:
    """What SuperFences calls for a block of Mermaid."""
    try:
        return draw(source)
    except ValueError as error:
        raise SuperFencesException(str(error)) from error
