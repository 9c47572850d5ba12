"""Once everything is healed, every client that asks gets the lock within a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.checkers import Violation
from verification.lab.history import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verification.lab.history import Event

__all__ = ["starvation", "times_to_recover"]


def times_to_recover(events: Sequence[Event]) -> dict[int, float | None]:
    """For every client that asked after the healing: how long it took until it was granted, or None.

    It is counted from the healing, or from the first call of a client that was started in the place of a killed one.
    """
    healed = next((event.t for event in events if event.kind is Kind.HEALED), None)
    if healed is None:
        return {}
    gone = {event.process for event in events if event.kind is Kind.ENDED and event.t <= healed}
    first: dict[int, float] = {}
    waits: dict[int, float | None] = {}
    for event in events:
        if event.kind is Kind.ACQUIRE:
            first.setdefault(event.process, event.t)
        if event.t < healed or event.process in gone:
            continue
        if event.kind in (Kind.ACQUIRE, Kind.BUSY, Kind.FAILED):
            waits.setdefault(event.process, None)
        elif event.kind is Kind.GRANTED and waits.get(event.process) is None:
            waits[event.process] = event.t - max(healed, first.get(event.process, healed))
    return waits


def starvation(events: Sequence[Event], limit: float, *, together: bool = False) -> list[Violation]:
    """Clients that were not granted within `limit` seconds after the healing; `together`: one of them is enough."""
    end = events[-1].t if events else 0.0
    waits = times_to_recover(events)
    if together and any(took is not None and took <= limit for took in waits.values()):
        return []
    found = []
    for process, took in sorted(waits.items()):
        if took is None or took > limit:
            said = "never" if took is None else f"after {took:.1f} s"
            detail = f"client {process} was granted {said}, and not within {limit:.1f} s after the healing"
            found.append(Violation("starvation", end, detail, (process,)))
    return found
