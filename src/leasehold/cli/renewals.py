"""Says that the lease is not being renewed while there is still time, and that it is again.

It only talks. The supervisor tells it of every confirmed renewal and asks it to look at the clock; the library tells it
of failures, from another thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.cli.durations import spoken
from leasehold.events import RenewalFailed

if TYPE_CHECKING:
    from leasehold.cli.output import Talk
    from leasehold.events import Event

__all__ = ["Renewals"]

REMINDERS = 6  # in a ttl
SHORTEST_PAUSE = 1.0


class Renewals:
    """What is known of the renewals of one lease."""

    def __init__(self, name: str, ttl: float, talk: Talk) -> None:
        self._name = name
        self._talk = talk
        self._pause = max(SHORTEST_PAUSE, ttl / REMINDERS)
        self._young = ttl / REMINDERS  # a failure that is reported so soon after a success was before it
        self._last = 0.0
        self._error: str | None = None
        self._speak_at = 0.0
        self._spoken = False

    def note(self, event: Event) -> None:
        """A failure is only written down here; the supervisor's thread talks."""
        if isinstance(event, RenewalFailed) and event.name == self._name:
            self._error = event.error

    def confirmed(self, instant: float) -> None:
        """The lease was extended."""
        if self._spoken:
            self._talk.note(f"{self._name!r} is renewed again")
        self._last, self._error, self._speak_at, self._spoken = instant, None, 0.0, False

    def look(self, instant: float, remaining: float) -> None:
        """Say how it stands if renewals fail, now and then."""
        if self._error is None or instant < self._speak_at or instant - self._last < self._young:
            return
        self._speak_at, self._spoken = instant + self._pause, True
        since = spoken(instant - self._last)
        self._talk.note(f"no renewal of {self._name!r} for {since}, {spoken(remaining)} left: {self._error}")
