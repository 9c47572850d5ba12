"""Rows of `claim` and `lock` as the states of locks, for operators."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from leasehold._backends.postgres.statements import holder_from
from leasehold.kit.pauses import pause_from_json
from leasehold.values import Holding, LockState, Mode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._backends.postgres.driver import Rows

__all__ = ["states_from"]

COOLING, WAITING = b"2", b"3"  # values of `state`; see `sql/tables.sql`


def states_from(rows: Rows) -> Sequence[LockState]:
    """The states of all keys in the rows of `Statements.states`, which come in order of key, holders first."""
    states: list[LockState] = []
    for number in range(rows.ntuples):
        values = [rows.get_value(number, column) for column in range(9)]
        name = bytes.fromhex((values[0] or b"").decode()).decode()
        mode, capacity = Mode((values[2] or b"").decode()), int(values[3] or 0)
        if not states or states[-1].name != name:
            states.append(LockState(name, mode, capacity, (), ()))
        elif not states[-1].holdings and not states[-1].waiting:  # so far only a pause, which is of no kind
            states[-1] = replace(states[-1], mode=mode, capacity=capacity)
        states[-1] = _with_row(states[-1], values)
    return states


def _with_row(state: LockState, values: Sequence[bytes | None]) -> LockState:
    holder = holder_from(values[4])
    assert holder is not None  # noqa: S101 - the column is never null
    if values[1] == WAITING:
        return replace(state, waiting=(*state.waiting, holder))
    held_for, expires_in = float(values[6] or 0), float(values[7] or 0)
    if (pause := pause_from_json(values[4], expires_in, held_for)) is not None:
        return replace(state, paused=pause)
    broken = None if values[8] is None else str(json.loads(values[8]))
    holding = Holding(holder, int(values[5] or 0), held_for, expires_in, broken, cooling=values[1] == COOLING)
    return replace(state, holdings=(*state.holdings, holding))
