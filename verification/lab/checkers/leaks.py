"""Nothing is left once every client has ended and the ttl has passed: no lock, waiter, connection or process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.checkers import Violation
from verification.lab.history import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verification.lab.history import Event

__all__ = ["leaks"]


def leaks(events: Sequence[Event]) -> list[Violation]:
    """What is left."""
    return [
        Violation("leak", event.t, f"{event.value} left: {event.detail}")
        for event in events
        if event.kind is Kind.LEFT and event.value
    ]
