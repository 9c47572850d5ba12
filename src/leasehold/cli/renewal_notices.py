"""The announcement that a lease is not being renewed, while there is still time, and that it is again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.cli.durations import show_duration
from leasehold.events import RenewalFailed

if TYPE_CHECKING:
    from leasehold.cli.held import Held
    from leasehold.cli.output import Console
    from leasehold.events import Event

__all__ = ["RenewalNotices"]

REMINDERS = 6  # in a ttl, while renewals fail
SHORTEST_PAUSE = 1.0  # between two reminders
SAME = 0.001  # an end that moved by less was not renewed


class RenewalNotices:
    """The caller gives it the clock; the library reports failures, from another thread."""

    def __init__(self, held: Held, ttl: float, console: Console) -> None:
        self._title = held.title
        self._names = held.fences
        self._console = console
        self._pause = max(SHORTEST_PAUSE, ttl / REMINDERS)
        self._young = ttl / REMINDERS  # a failure reported so soon after a success happened before it
        self._ends = 0.0
        self._last = 0.0
        self._error: str | None = None
        self._announce_at = 0.0
        self._announced = False

    def note(self, event: Event) -> None:
        """Keep a failure for the thread that prints."""
        if isinstance(event, RenewalFailed) and event.name in self._names:
            self._error = event.error

    def look(self, instant: float, remaining: float) -> bool:
        """Whether the lease was extended since the last look; while renewals fail, says so now and then."""
        ends = instant + remaining
        if ends > self._ends + SAME:
            self._ends = ends
            self._confirmed(instant)
            return True
        self._announce(instant, remaining)
        return False

    def _confirmed(self, instant: float) -> None:
        if self._announced:
            self._console.note(f"{self._title} is renewed again")
        self._last, self._error, self._announce_at, self._announced = instant, None, 0.0, False

    def _announce(self, instant: float, remaining: float) -> None:
        """How long renewals have failed, how much time is left, and why."""
        if self._error is None or instant < self._announce_at or instant - self._last < self._young:
            return
        self._announce_at, self._announced = instant + self._pause, True
        since, left = show_duration(instant - self._last), show_duration(remaining)
        self._console.note(f"no renewal of {self._title} for {since}, {left} left before it is lost: {self._error}")
