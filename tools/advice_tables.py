"""Draws what `leasehold choose` and `leasehold explain` know into the documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.cli.choose_table import NEEDS, PATTERNS, STORES
from leasehold.cli.explain_table import EXPLANATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["draw_explanations", "draw_needs", "draw_stores_compared"]


def draw_needs() -> str:
    """Every need with its way, and the reason."""
    rows = [
        (
            need.words,
            f"[{PATTERNS[need.pattern].title}]({_from_how_to(PATTERNS[need.pattern].page)})",
            _why(need.pattern),
        )
        for need in NEEDS.values()
    ]
    return _table(("you want to", "take", "because"), rows)


def draw_stores_compared() -> str:
    """Every store with what it costs and what can go wrong."""
    heads = ("store", "can be lost by", "free after a crash", "fair queue", "must not step", "trap", "a pair takes")
    rows = [
        (
            f"[{store.title}]({_from_how_to(store.page)})",
            store.loses,
            store.takes_over,
            store.queue,
            store.clock,
            store.trap,
            store.latency,
        )
        for store in STORES.values()
    ]
    return _table(heads, rows)


def draw_explanations() -> str:
    """A section for each error; its heading is the name, so the anchor is stable."""
    sections = []
    for name, found in EXPLANATIONS.items():
        steps = "\n".join(f"- {step}" for step in found.do)
        more = f"\n\nMore: [{found.page}](../{found.page})" if found.page else ""
        sections.append(f"### {name}\n\n{found.when}\n\n**What to do**\n\n{steps}{more}")
    return "\n\n".join(sections)


def _why(pattern: str) -> str:
    return PATTERNS[pattern].why


def _from_how_to(page: str) -> str:
    return page.removeprefix("how-to/") if page.startswith("how-to/") else f"../{page}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
