"""A table as rows of text, and how figures are written in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Table", "seconds", "share", "span"]

SPACE = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True, slots=True)
class Table:
    """A title, names of columns, and rows of text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def share(lost: int, of: int) -> str:
    """So many of so many, and the rate if there are any."""
    return "-" if not of else f"{lost} of {of}" + (f" ({100 * lost / of:.1f} %)" if lost else "")


def seconds(value: float | None) -> str:
    """With two places; a dash for what was not measured."""
    return "-" if value is None else f"{value:.2f}{SPACE}s"


def span(least: float | None, most: float | None) -> str:
    """From the least to the most; one figure if they are the same."""
    if least is None or most is None or f"{least:.2f}" == f"{most:.2f}":
        return seconds(most)
    return f"{least:.2f} to {seconds(most)}"
