"""Whether one lock with one owner could have given these answers: acquire, release and expiry, each at one instant.

Owner-aware: only the owner's release frees the lock, and a release that answered "yes" was made while its caller owned
it. A grant begins at some instant of its call. It ends within its release if that freed the lock, and otherwise at the
earliest when its holder's local deadline was over or a release was begun. The search places one grant after the other;
in which order those of overlapping calls come is open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.checkers import Violation
from verification.lab.history import holds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verification.lab.history import Event, Hold

__all__ = ["linearizable"]

WINDOW = 12  # so many grants that overlap in time are tried in every order


def linearizable(events: Sequence[Event]) -> list[Violation]:
    """The first grant that fits nowhere, or nothing."""
    left = sorted(holds(events), key=lambda hold: (hold.granted, hold.asked))
    free_from = 0.0
    while left:
        place = _next(left, free_from)
        if place is None:
            hold = left[0]
            detail = f"the grant of client {hold.process} (fence {hold.fence}) fits at no instant of its call"
            return [Violation("not linearizable", hold.granted, detail, (hold.process,))]
        hold = left.pop(place)
        free_from = max(free_from, hold.asked, _earliest_end(hold))
    return []


def _earliest_end(hold: Hold) -> float:
    """Before this instant nobody else can own it."""
    if hold.was_freed and hold.released_from is not None:
        return hold.released_from
    return hold.believed_until


def _next(left: Sequence[Hold], free_from: float) -> int | None:
    """The place of a grant that can come next and leaves room for all others that were under way with it."""
    window = [hold for hold in left[:WINDOW] if hold.asked <= left[0].granted]
    order = _search(window, free_from)
    return None if order is None else left.index(order[0])


def _search(window: Sequence[Hold], free_from: float) -> list[Hold] | None:
    if not window:
        return []
    for place, hold in enumerate(window):
        others = [*window[:place], *window[place + 1 :]]
        begins = max(free_from, hold.asked)
        must_precede = any(other.granted < hold.asked for other in others)
        if begins <= hold.granted and not must_precede:
            rest = _search(others, max(begins, _earliest_end(hold)))
            if rest is not None:
                return [hold, *rest]
    return None
