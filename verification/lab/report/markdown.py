"""The same tables as Markdown, for the documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.report.tables import headline, matrix_table, peer_table, settings_table, store_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verification.lab.report.results import Cell
    from verification.lab.report.tables import Table

__all__ = ["draw_matrix", "draw_peers", "draw_settings", "draw_stores", "draw_sums"]


def _table(table: Table) -> str:
    lines = [table.columns, ["---"] * len(table.columns), *table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def draw_sums(cells: Sequence[Cell]) -> str:
    """The sums, as a list."""
    return "\n".join(f"- {line}" for line in headline(cells))


def draw_matrix(cells: Sequence[Cell]) -> str:
    """Stores by faults."""
    return _table(matrix_table(cells))


def draw_stores(cells: Sequence[Cell]) -> str:
    """What was measured on each store."""
    return _table(store_table(cells))


def draw_peers(cells: Sequence[Cell]) -> str:
    """Other libraries beside ours."""
    return _table(peer_table(cells))


def draw_settings() -> str:
    """How they are used."""
    return _table(settings_table())
