"""Warns, once per name, that a store gives another ttl than the lock was made with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._core import events as happened
from leasehold._core.validity import is_near

if TYPE_CHECKING:
    from leasehold._core.event_dispatcher import EventDispatcher
    from leasehold._core.tenure import Tenure

__all__ = ["TtlWarnings"]

MOST_NAMES = 1_000  # a program with more names has been warned often enough


class TtlWarnings:
    """The names of one client that a warning was given for."""

    def __init__(self, dispatcher: EventDispatcher) -> None:
        self._dispatcher = dispatcher
        self._names: set[str] = set()

    def note(self, tenure: Tenure) -> None:
        """Compare a grant or a renewal; the short ttl after a hand-over does not count, a renewal follows soon."""
        name, asked, given = tenure.name, tenure.grant.claim.ttl, tenure.ttl
        if tenure.is_window or name in self._names or len(self._names) >= MOST_NAMES or is_near(asked, given):
            return
        self._names.add(name)
        self._dispatcher.dispatch(happened.TtlDiffers(name, asked, given))
