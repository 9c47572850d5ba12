"""A job is recorded as done once: for each slot of `once`, and for each number of a queue."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from verification.lab.checkers import Violation
from verification.lab.history import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verification.lab.history import Event

__all__ = ["once_each"]


def once_each(events: Sequence[Event]) -> list[Violation]:
    """Jobs that were recorded twice; a body that ran twice because its client was killed is none."""
    done = Counter(event.detail for event in events if event.kind is Kind.DONE)
    when = {event.detail: event.t for event in events if event.kind is Kind.DONE}
    return [
        Violation("done twice", when[job], f"{job} was recorded {count} times")
        for job, count in done.items()
        if count > 1
    ]
