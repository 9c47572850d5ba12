"""The pause of a name: an operator's order not to grant it for now. It is a row like others.

The row takes up room as one that is kept for its min_hold does: it is never renewed, cannot be broken, and runs out by
itself. It is exclusive, and the rules let nothing in beside an exclusive row. It has an owner value that no claim has,
by which it is found.

A store that keeps holders as text marks the text of a pause (`pause_to_json`); readers of earlier versions take it for
a holder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold._lazy import lazy
from leasehold.kit.holder import holder_fields, holder_from_fields
from leasehold.kit.rows import Row, State
from leasehold.values import UNLIMITED, Claim, Mode, Pause

if TYPE_CHECKING:
    import json
    from collections.abc import Iterator

    from leasehold.kit.rows import Rows
    from leasehold.values import Holder
else:
    json = lazy("json")

__all__ = [
    "OWNER",
    "holders_of",
    "pause",
    "pause_from_json",
    "pause_of",
    "pause_of_holder",
    "pause_row",
    "pause_to_json",
    "resume",
]

OWNER = "pause"  # owner values of claims are random, and longer
MARK = "pause"


def pause(rows: Rows, by: Holder, seconds: float) -> None:
    """Pause the name for so long, instead of a pause that is there."""
    row = pause_row(rows)
    if row is not None:
        rows.delete(row)
    claim = Claim(rows.key, OWNER, seconds, Mode.EXCLUSIVE, 1, 0.0, by)
    rows.insert(Row(claim, State.COOLING, rows.now, rows.now + seconds))


def resume(rows: Rows) -> bool:
    """End the pause; False if there is none."""
    row = pause_row(rows)
    if row is None:
        return False
    rows.delete(row)
    rows.changed = True
    return True


def pause_row(rows: Rows) -> Row | None:
    """The row of the pause, if the name is paused."""
    return next((row for row in rows.of_owner(OWNER) if row.expires > rows.now), None)


def holders_of(rows: Rows) -> Iterator[Row]:
    """The rows that hold or cool, without the pause."""
    return (row for row in rows.held() if row.claim.owner != OWNER)


def pause_of(row: Row | None, now: float) -> Pause | None:
    """What the row of a pause says at this instant."""
    return None if row is None else pause_of_holder(row.claim.holder, row.expires - now, now - row.since)


def pause_of_holder(by: Holder, left: float | None, paused_for: float | None = None) -> Pause:
    """The pause that is stored as this holder."""
    is_limited = left is not None and left < UNLIMITED / 2
    return Pause(by.reason or "no reason given", by.label or str(by), left if is_limited else None, paused_for)


def pause_to_json(by: Holder) -> str:
    """The stored form of a holder, with the mark of a pause."""
    return json.dumps({**holder_fields(by), MARK: 1}, separators=(",", ":"))


def pause_from_json(value: str | bytes | None, left: float | None, paused_for: float | None = None) -> Pause | None:
    """The pause that this text is the stored form of; None if it is that of a holder, or of anything else."""
    if not value or (b'"pause"' if isinstance(value, bytes) else '"pause"') not in value:  # type: ignore[operator]
        return None
    try:
        fields: Any = json.loads(value)
    except ValueError:
        return None
    by = holder_from_fields(fields)
    if by is None or fields.get(MARK) != 1:
        return None
    return pause_of_holder(by, left, paused_for)
