"""The same tables as Markdown, for the documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.faults import FAULTS
from verification.lab.matrix import Plan, may_overlap, note, why_impossible
from verification.lab.report.goals import goal_table
from verification.lab.report.table import Table
from verification.lab.report.tables import (
    TITLES,
    headline,
    matrix_table,
    peer_table,
    settings_table,
    store_table,
    workload_table,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verification.lab.report.results import Cell

__all__ = [
    "draw_goals",
    "draw_matrix",
    "draw_peers",
    "draw_reasons",
    "draw_settings",
    "draw_stores",
    "draw_sums",
    "draw_workloads",
]


def _table(table: Table) -> str:
    lines = [table.columns, ["---"] * len(table.columns), *table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def draw_sums(cells: Sequence[Cell]) -> str:
    """The sums, as a list."""
    return "\n".join(f"- {line}" for line in headline(cells))


def draw_goals(cells: Sequence[Cell]) -> str:
    """What is wanted, and what was seen."""
    return _table(goal_table(cells))


def draw_matrix(cells: Sequence[Cell]) -> str:
    """Stores by faults."""
    return _table(matrix_table(cells))


def draw_stores(cells: Sequence[Cell]) -> str:
    """What was measured on each store."""
    return _table(store_table(cells))


def draw_workloads(cells: Sequence[Cell]) -> str:
    """The other workloads, store by store."""
    return _table(workload_table(cells))


def draw_peers(cells: Sequence[Cell]) -> str:
    """Other libraries beside ours."""
    return _table(peer_table(cells))


def draw_settings(cells: Sequence[Cell]) -> str:
    """How they are used."""
    return _table(settings_table(cells))


def draw_reasons() -> str:
    """Which cells make no sense, and where two owners are possible, store by store."""
    lines = []
    for store, title in TITLES.items():
        plans = [Plan(store, fault) for fault in FAULTS]
        said = [(plan.fault, "makes no sense", why_impossible(plan)) for plan in plans]
        said += [(plan.fault, "two owners are possible", may_overlap(plan)) for plan in plans]
        said += [(plan.fault, "note", note(plan)) for plan in plans]
        lines += [[title, fault, what, why] for fault, what, why in said if why]
    return _table(Table("", ["store", "fault", "", "why"], lines))
