"""What the lab is for, goal by goal: what is wanted, what was seen, and whether that is enough to say so."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from verification.lab.adapters import OURS
from verification.lab.matrix import may_overlap
from verification.lab.report.table import Table, seconds, share
from verification.lab.verdict import needs_control

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from verification.lab.report.results import Cell

__all__ = ["bound", "goal_table"]

KEPT, BROKEN, FEW = "✓", "✗", "too few"
UPDATES = 100_000
CERTAINTY = 0.95
COLUMNS = ("goal", "wanted", "seen", "")

Row = tuple[str, str, str, str]


def goal_table(cells: Sequence[Cell]) -> Table:
    """Over all cells of ours that ran."""
    ours = [cell for cell in cells if cell.plan.library == OURS and cell.ran]
    goals: tuple[Callable[[Sequence[Cell]], Row], ...] = (
        _updates,
        _control,
        _fences,
        _owners,
        _losses,
        _kills,
        _served,
        _jobs,
        _left,
    )
    return Table("Goals", COLUMNS, [goal(ours) for goal in goals])


def bound(trials: int) -> int:
    """If no failure was seen in so many trials: it is rarer than one in this number, with 95 % certainty."""
    return math.floor(trials / -math.log(1 - CERTAINTY))


def _total(cells: Sequence[Cell], name: str) -> int:
    return sum(cell.count(name) for cell in cells)


def _found(cells: Sequence[Cell], *checks: str) -> int:
    return sum(each["count"] for cell in cells for each in cell.violations if each["check"] in checks)


def _worst(cells: Sequence[Cell], name: str, allowed: Callable[[Cell], float] = lambda _: 0.0) -> float | None:
    known = [value - allowed(cell) for cell in cells if (value := cell.times.get(name)) is not None]
    return max(known, default=None)


def _mark(bad: int, seen: int, enough: int = 1) -> str:
    return BROKEN if bad else KEPT if seen >= enough else FEW


def _updates(cells: Sequence[Cell]) -> Row:
    lost, of = _total(cells, "lost with fence"), _total(cells, "fenced updates")
    rate = f"; with 95 % certainty fewer than one in {bound(of):,}" if of and not lost else ""
    wanted = f"none of {UPDATES:,}"
    return "acknowledged updates lost behind the guard", wanted, share(lost, of) + rate, _mark(lost, of, UPDATES)


def _control(cells: Sequence[Cell]) -> Row:
    mine = [cell for cell in cells if needs_control(cell.plan)]
    lost, of = _total(mine, "lost without fence"), _total(mine, "unfenced updates")
    quiet = sum(not cell.count("lost without fence") for cell in mine)
    seen = f"{share(lost, of)}, in {len(mine) - quiet} of {len(mine)} cells"
    return (
        "the control: the same updates without the guard, clients paused",
        "some, in every cell",
        seen,
        _mark(quiet, len(mine)),
    )


def _fences(cells: Sequence[Cell]) -> Row:
    wrong, grants = _found(cells, "fence order"), _total(cells, "grants")
    forgets = _total([cell for cell in cells if cell.plan.fault in ("failover", "restart empty")], "faults")
    seen = f"{wrong} of {grants:,} grants, over {forgets} failovers and empty restarts"
    return "fences that fell or came again", "none", seen, _mark(wrong, grants)


def _owners(cells: Sequence[Cell]) -> Row:
    mine = [cell for cell in cells if not may_overlap(cell.plan)]
    wrong = _found(mine, "two owners", "leader overlap", "not linearizable")
    seen = f"{wrong} in {_total(mine, 'grants'):,} grants of {len(mine)} cells"
    return (
        "two holders at once, or a history that one lock cannot have, where the store excludes it",
        "none",
        seen,
        _mark(wrong, len(mine)),
    )


def _losses(cells: Sequence[Cell]) -> Row:
    late, losses = _found(cells, "late loss"), _total(cells, "losses")
    ratio = max(
        (worst / cell.ttl for cell in cells if (worst := cell.times.get("notice loss")) is not None), default=None
    )
    most = (
        "" if ratio is None else f"; of {_total(cells, 'cut holders')} that were cut off the last after {ratio:.2f} ttl"
    )
    seen = f"{losses - late} of {losses}{most}"
    return "losses that the holder knew within the ttl", "all", seen, _mark(late, losses)


def _kills(cells: Sequence[Cell]) -> Row:
    late, killed = _total(cells, "killed holders, late"), _total(cells, "killed holders")
    worst = _worst(cells, "next grant after a kill", lambda cell: cell.ttl)
    most = (
        ""
        if worst is None
        else f"; the last {seconds(abs(worst))} {'after' if worst > 0 else 'before'} the ttl was over"
    )
    seen = f"{killed - late} of {killed}{most}"
    return "holders killed whose lock was granted again within ttl + 1 s", "all", seen, _mark(late, killed)


def _served(cells: Sequence[Cell]) -> Row:
    starving = _found(cells, "starvation")
    worst = _worst(cells, "last client after healing")
    mine = [cell for cell in cells if cell.times.get("last client after healing") is not None]
    seen = f"{len(mine) - starving} of {len(mine)} cells, the last client after {seconds(worst)}"
    return "cells in which every client was served again", "all", seen, _mark(starving, len(mine))


def _jobs(cells: Sequence[Cell]) -> Row:
    mine = [cell for cell in cells if not may_overlap(cell.plan)]
    twice, jobs = _found(mine, "done twice"), _total(mine, "jobs")
    return (
        "jobs that run once, or of queues, that were recorded twice",
        "none",
        f"{twice} of {jobs:,}",
        _mark(twice, jobs),
    )


def _left(cells: Sequence[Cell]) -> Row:
    left = _found(cells, "leak")
    return (
        "cells that left a lock, waiter, connection or process",
        "none",
        f"{left} of {len(cells)}",
        _mark(left, len(cells)),
    )
