"""One grant from its holder's side: state, deadline, when to renew.

Several `Lease` objects may share a tenure (re-entrant locks). Every change happens under the keeper's guard; reading
`state` and `deadline` without it is safe, because each is one assignment and a loss is never taken back.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from leasehold._core.states import HELD, RELEASING, TRANSITIONS, Event, State
from leasehold._core.validity import believed_until, renewal_due, retry_due
from leasehold._log import logger
from leasehold.values import Loss, LossReason

if TYPE_CHECKING:
    import weakref
    from collections.abc import Iterable

    from leasehold._core.batch import Batch
    from leasehold.values import Grant

__all__ = ["Tenure", "Watcher", "notify"]

MOST_UNDER_WAY = 8  # renewals of one lease, so that a store that hangs does not collect requests without end

_SENTENCES = {
    LossReason.MAX_HOLD: "it was held for as long as max_hold allows",
    LossReason.UNCONFIRMED: "the store did not confirm a renewal before the deadline",
    LossReason.EXPIRED: "its time ran out before it was renewed",
}


class Watcher(Protocol):
    """Is notified of the end of a lease."""

    def on_end(self, loss: Loss | None) -> None:
        """The lease is lost; or it was released, and `loss` is None."""

    def loss_is_raised(self) -> None:
        """A call on the lease is about to raise the loss in the running thread or task."""


class Tenure:
    """The holder's side of one grant."""

    gives_back_late = True  # whether a renewal that is confirmed after the end is released at once
    is_parked = False  # whether the program has released it, and the client keeps it for a moment: see `linger`

    __slots__ = (
        "__weakref__",
        "batch",
        "confirmed",
        "deadline",
        "doubtful",
        "due",
        "ends",
        "failure",
        "freed",
        "grant",
        "handles",
        "loss",
        "max_hold",
        "name",
        "number",
        "perhaps_freed",
        "renewable",
        "state",
        "taker",
        "ttl",
        "under_way",
        "watchers",
    )

    def __init__(self, name: str, grant: Grant, since: float, *, renew: bool, max_hold: float | None) -> None:
        self.name: str = name
        self.grant: Grant = grant
        self.state: State = HELD
        self.renewable: bool = renew
        trusted = believed_until(since, grant.ttl)
        self.max_hold: float = math.inf if max_hold is None else max_hold
        self.ends: float = since + self.max_hold
        self.deadline: float = trusted if max_hold is None else min(trusted, self.ends)
        self.ttl: float = grant.ttl  # the most that the store has given so far
        self.due: float = renewal_due(since, grant.ttl, grant.claim.ttl) if renew else math.inf
        self.under_way: int = 0  # renewals that were sent and are not answered
        self.confirmed: float = -math.inf  # when the newest of the renewals was sent that were confirmed
        self.failure: str | None = None  # why the last renewal failed
        self.loss: Loss | None = None
        self.doubtful: bool = False  # a request of its claim got no answer, and may still arrive
        self.perhaps_freed: bool = False  # a request to release it got no answer
        self.freed: bool = False  # by a release in the background that no call of `release` has reported yet
        self.handles: int = 1
        self.batch: Batch | None = None  # whose grant it shares with others: a `LocalTenure` has one
        self.taker: int = 0  # the identity of the thread or task that acquired it, for messages
        self.number: int = -1  # the keeper's number for it
        self.watchers: list[weakref.ref[Watcher]] = []

    @property
    def is_window(self) -> bool:
        """Whether less was granted than was claimed, and the first renewal may bring more."""
        return self.confirmed == -math.inf and self.renewable and self.grant.ttl < self.grant.claim.ttl

    @property
    def kept_until(self) -> float:
        """The instant until which the store surely keeps it, and a release is of use."""
        return self.deadline

    def trusted_until(self, since: float, ttl: float) -> float:
        """The instant from which a grant of so long must not be trusted any more."""
        return believed_until(since, ttl)

    def present_watchers(self) -> list[Watcher]:
        """The watchers that still exist; the references are weak, so that a watch keeps no lease alive."""
        return [watcher for reference in self.watchers if (watcher := reference()) is not None]

    def settle(self, now: float) -> Loss | None:
        """Decide the loss if the deadline has passed. The first caller decides, and it stays decided."""
        if now >= self.deadline and self.state in (HELD, RELEASING):
            self.lose(self._verdict(now))
        return self.loss

    def lose(self, loss: Loss) -> None:
        """The grant is over. Only the first reason counts."""
        before = self.state
        self.state = TRANSITIONS[before, Event.LOSE]
        if before is HELD:
            self.loss = loss

    def renewal_sent(self, now: float, patience: float) -> None:
        """A renewal is about to be sent; another one becomes due after `patience` seconds without an answer."""
        self.under_way += 1
        self.due = now + patience

    def renewal_ended(self) -> None:
        """A renewal got an answer or failed."""
        self.under_way -= 1

    def confirm(self, answer: Grant, sent: float, now: float) -> None:
        """The store confirmed a renewal that was sent at `sent`. It counts only if the deadline has not passed yet."""
        self.settle(now)
        self.state = TRANSITIONS[self.state, Event.CONFIRM]
        if self.state is not HELD or sent < self.confirmed:
            return  # a hedged renewal may be answered after a later one: the deadline never goes back
        self.failure, self.confirmed = None, sent
        self.ttl = max(self.ttl, answer.ttl)
        self.deadline = min(max(self.deadline, self.trusted_until(sent, answer.ttl)), self.ends)
        # What a renewal brought is what the store can give: less than was claimed is no reason to renew again at once.
        self.due = renewal_due(sent, answer.ttl, answer.ttl)

    def failed(self, why: str, sent: float, now: float) -> bool:
        """A renewal got no answer; try again soon. False if a later one was confirmed, so that nothing has failed."""
        if sent < self.confirmed:
            return False
        self.failure = why
        retry = retry_due(now, self.grant.claim.ttl)
        self.due = min(self.due, retry) if self.under_way else retry
        return True

    def wants_renewal(self, now: float, ahead: float = 0.0) -> bool:
        """Whether a renewal is due, or will be within `ahead`; also beside some that are under way, but not many."""
        if self.state is not HELD or not self.renewable or now >= self.deadline:
            return False
        return now + ahead >= self.due and self.under_way < MOST_UNDER_WAY

    def next_action(self) -> float:
        """When the keeper has to look again."""
        if self.state is not HELD or not self.renewable or self.under_way >= MOST_UNDER_WAY:
            return self.deadline
        return min(self.deadline, self.due)

    def _verdict(self, now: float) -> Loss:
        if now >= self.ends:
            reason = LossReason.MAX_HOLD
        elif self.failure is not None or self.under_way:
            reason = LossReason.UNCONFIRMED
        else:
            reason = LossReason.EXPIRED
        detail = _SENTENCES[reason]
        return Loss(reason, f"{detail} ({self.failure})" if self.failure else detail)


async def notify(lost: Iterable[Tenure]) -> None:
    """Call the watchers of these leases."""
    for tenure in lost:
        for watcher in tenure.present_watchers():
            try:
                watcher.on_end(tenure.loss)
            except Exception:
                logger.exception("on_lost failed for %r; the lease is lost all the same", tenure.name)
