"""Fences rise from grant to grant, and none is given twice.

Two calls that were under way at the same time may get their fences in either order; what is fixed is that a call which
begins after another has returned gets a higher one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.checkers import Violation
from verification.lab.history import holds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verification.lab.history import Event, Hold

__all__ = ["fence_order"]


def fence_order(events: Sequence[Event]) -> list[Violation]:
    """Fences that came again, or after a higher one."""
    fenced = [hold for hold in holds(events) if hold.fence is not None]
    return [*_repeats(fenced), *_falls(fenced)]


def _repeats(fenced: Sequence[Hold]) -> list[Violation]:
    seen: dict[int, Hold] = {}
    found = []
    for hold in fenced:
        assert hold.fence is not None
        if hold.fence in seen:
            pair = (seen[hold.fence].process, hold.process)
            found.append(Violation("fence order", hold.granted, f"fence {hold.fence} was given twice", pair))
        seen[hold.fence] = hold
    return found


def _falls(fenced: Sequence[Hold]) -> list[Violation]:
    """In the order in which calls began, against the highest fence that was known by then."""
    returned = sorted(fenced, key=lambda hold: hold.granted)
    found = []
    highest, place = 0, 0
    for hold in sorted(fenced, key=lambda hold: hold.asked):
        while place < len(returned) and returned[place].granted < hold.asked:
            highest = max(highest, returned[place].fence or 0)
            place += 1
        if (hold.fence or 0) < highest:
            detail = f"fence {hold.fence} came after {highest} had been given"
            found.append(Violation("fence order", hold.granted, detail, (hold.process,)))
    return found
