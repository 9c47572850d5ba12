"""A tenure with an earlier end: a leader stops a while before its lease can end in the store.

What counts is the renew deadline, from the *send* of the last renewal that was confirmed. From then on until the ttl is
over the store keeps others out, and what the leader did has time to stop. Everything else is as for any lease: the same
keeper, the same decision about the loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold._core.states import State
from leasehold._core.tenure import Tenure, notify

if TYPE_CHECKING:
    from leasehold._core.open_client import OpenClient
    from leasehold.values import Grant, Loss

__all__ = ["Term", "Timings"]


@dataclass(frozen=True, slots=True)
class Timings:
    """The timings of an election, in seconds and checked."""

    ttl: float  # how long others are kept out without a renewal
    renew_deadline: float  # how long the leader leads without one
    retry: float  # how often it renews; how often candidates try again and observers look


class Term(Tenure):
    """The holder's side of the grant of a leader."""

    __slots__ = ("_kept_until", "_timings")

    gives_back_late = False  # its body may still be stopping; it is released when the body has ended

    def __init__(self, name: str, grant: Grant, since: float, timings: Timings) -> None:
        super().__init__(name, grant, since, renew=True, max_hold=None)
        self._timings = timings
        self._kept_until = super().trusted_until(since, grant.ttl)
        self.deadline = self.trusted_until(since, grant.ttl)
        self.due = min(self.due, since + timings.retry)

    @property
    def kept_until(self) -> float:
        """The end of the lease, which comes after the renew deadline."""
        return self._kept_until

    def trusted_until(self, since: float, ttl: float) -> float:
        """The renew deadline, or the end of the lease where the store gave less than that."""
        return min(super().trusted_until(since, ttl), since + self._timings.renew_deadline)

    def confirm(self, answer: Grant, sent: float, now: float) -> None:
        """Renewed; the next renewal follows after `retry` seconds."""
        super().confirm(answer, sent, now)
        if self.confirmed == sent:
            self._kept_until = max(self._kept_until, super().trusted_until(sent, answer.ttl))
            self.due = min(self.due, sent + self._timings.retry)

    def give_up(self, opened: OpenClient, loss: Loss) -> bool:
        """End it by the wish of its holder: its watchers are notified as of a loss, but nothing was lost.

        The store keeps it until it is released. False if it was over already.
        """
        keeper = opened.keeper
        with keeper.guard:
            self.settle(opened.runtime.now())
            was_held = self.state is State.HELD
            if was_held:
                self.lose(loss)
                keeper._known.pop(self.number, None)  # nothing to report
        if was_held:
            keeper._notifier = opened.runtime.spawn(notify([self]), "leasehold end of term")
        return was_held
