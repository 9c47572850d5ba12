"""Acknowledged updates that are not in the database any more.

Every update reads a counter and writes the next number. Two acknowledged writes of the same number mean that one of
them overwrote the other; and the counter at the end cannot be below the number of acknowledged writes. Both are
counted, because a write whose client was killed before the answer may be in the counter without being acknowledged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.checkers import Violation
from verification.lab.history import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verification.lab.history import Event

__all__ = ["count_lost", "lost_update"]


def count_lost(events: Sequence[Event], kind: Kind) -> int:
    """How many updates were acknowledged and are lost; `kind` is WROTE or UNFENCED."""
    written = [event.value for event in events if event.kind is kind]
    repeated = len(written) - len(set(written))
    final = next((event.value for event in events if event.kind is Kind.FINAL and event.detail == kind), None)
    missing = 0 if final is None else len(written) - final
    return max(repeated, missing, 0)


def lost_update(events: Sequence[Event]) -> list[Violation]:
    """Fenced updates only: that the others are lost is what the fence is for."""
    lost = count_lost(events, Kind.WROTE)
    if not lost:
        return []
    seen: dict[int | None, Event] = {}
    for event in events:
        if event.kind is Kind.WROTE:
            if event.value in seen:
                first = seen[event.value]
                detail = f"{lost} lost; {event.value} was written with fence {first.fence} and with {event.fence}"
                return [Violation("lost update", event.t, detail, (first.process, event.process))]
            seen[event.value] = event
    return [Violation("lost update", events[-1].t, f"{lost} lost: the counter lacks them at the end")]
