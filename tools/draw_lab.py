"""The tables of the fault lab, from docs/reference/lab.json, which `python -m verification.lab report --docs` writes.

It knows what the report of the lab can draw, and where the results are kept.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from verification.lab.report import markdown
from verification.lab.report.results import read_compact

if TYPE_CHECKING:
    from collections.abc import Callable

    from verification.lab.report.results import Cell

__all__ = ["DRAWINGS"]

FILE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "lab.json"


@cache
def _cells() -> list[Cell]:
    return read_compact(FILE)


DRAWINGS: dict[str, Callable[[], str]] = {
    "lab-sums": lambda: markdown.draw_sums(_cells()),
    "lab-goals": lambda: markdown.draw_goals(_cells()),
    "lab-workloads": lambda: markdown.draw_workloads(_cells()),
    "lab-matrix": lambda: markdown.draw_matrix(_cells()),
    "lab-stores": lambda: markdown.draw_stores(_cells()),
    "lab-peers": lambda: markdown.draw_peers(_cells()),
    "lab-settings": lambda: markdown.draw_settings(_cells()),
    "lab-reasons": markdown.draw_reasons,
}
