"""Two candidates that led at the same time: one read that it leads after one of a later term had read the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.checkers import Violation
from verification.lab.history import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verification.lab.history import Event

__all__ = ["leader_overlap"]


def leader_overlap(events: Sequence[Event]) -> list[Violation]:
    """Readings of two leaders, in an order that cannot be; the instants are those of the readings themselves."""
    found = []
    newest: Event | None = None  # the highest term that was read so far
    told: set[tuple[int | None, int | None]] = set()
    for event in sorted((each for each in events if each.kind is Kind.LEADS), key=lambda each: each.t):
        if newest is None or (event.fence or 0) >= (newest.fence or 0):
            newest = event
        elif event.process != newest.process and (event.fence, newest.fence) not in told:
            told.add((event.fence, newest.fence))
            detail = (
                f"client {event.process} still led in term {event.fence} while {newest.process} led in {newest.fence}"
            )
            found.append(Violation("leader overlap", event.t, detail, (event.process, newest.process)))
    return found
