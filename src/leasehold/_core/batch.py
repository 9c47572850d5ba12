"""A batch: one grant of the store that several calls of a client use, one after the other, under successive fences.

See `local_queue` for who is served by it, and `linger` for a batch of one call that comes again.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from leasehold._core.states import HELD
from leasehold._core.tenure import Tenure
from leasehold.values import Grant

if TYPE_CHECKING:
    from leasehold._core.local_queue import LocalQueue, LocalWaiter
    from leasehold._core.open_client import OpenClient

__all__ = ["LONGEST", "MOST", "Batch", "LocalTenure", "first_tenure", "next_tenure"]

MOST = 64  # hand-overs of one batch
LONGEST = 0.05  # seconds after the grant in which a batch passes its tenure on


class Batch:
    """One grant of the store that several calls use, one after the other."""

    __slots__ = ("last", "left", "present", "queue", "trusted", "until")

    is_parked = False  # see `linger`

    def __init__(self, queue: LocalQueue, grant: Grant, now: float, trusted: float) -> None:
        self.queue: LocalQueue = queue
        self.last: int = queue.arrivals  # a later one has to wait for the next batch
        self.left: int = min(grant.spare, MOST)
        self.until: float = now + LONGEST
        self.trusted: float = trusted  # until when the grant may be trusted, whatever max_hold a holder has
        self.present: weakref.ref[LocalTenure] | None = None

    def is_over(self) -> bool:
        """Whether its tenure has ended."""
        tenure = None if self.present is None else self.present()
        return tenure is None or tenure.state is not HELD

    def serves_all_until(self, waiter: LocalWaiter, now: float) -> float:
        """Until when it may still serve this waiter and all ahead of it; 0 if it cannot."""
        is_enough = waiter.arrival <= self.last and len(self.queue.waiting) <= self.left
        return self.until if is_enough and now < self.until and not self.is_over() else 0.0

    def passes_on(self, tenure: LocalTenure, now: float) -> bool:
        """Whether another one may have it now: with at least half of what the store gave still to go."""
        is_long_enough = self.trusted - now >= tenure.grant.ttl / 2
        return self.left > 0 and now < self.until and is_long_enough and not tenure.perhaps_freed


class LocalTenure(Tenure):
    """A tenure of a batch."""

    __slots__ = ()

    batch: Batch

    def confirm(self, answer: Grant, sent: float, now: float) -> None:
        """A renewal is one of the whole batch."""
        super().confirm(answer, sent, now)
        if self.state is HELD:
            self.batch.trusted = max(self.batch.trusted, self.trusted_until(sent, answer.ttl))

    def pass_on(self, opened: OpenClient) -> bool:
        """Give it to the next one; False if it has to be given back to the store."""
        return opened.local is not None and opened.local.pass_on(self)


def first_tenure(queue: LocalQueue, waiter: LocalWaiter, grant: Grant, since: float, now: float) -> LocalTenure:
    """The tenure of a grant of the store, for the first waiter."""
    spec = waiter.call.spec
    tenure = LocalTenure(spec.name, grant, since, renew=True, max_hold=spec.max_hold)
    tenure.batch = batch = Batch(queue, grant, now, tenure.trusted_until(since, grant.ttl))
    tenure.taker = waiter.taker
    batch.present = weakref.ref(tenure)
    return tenure


def next_tenure(before: LocalTenure, waiter: LocalWaiter, now: float) -> LocalTenure:
    """The tenure of the next one in a batch: the same grant of the store, under the next fence."""
    batch, grant, spec = before.batch, before.grant, waiter.call.spec
    grant = Grant(grant.claim, grant.fence + 1, grant.ttl, grant.since, False, grant.spare - 1)  # noqa: FBT003
    tenure = LocalTenure(spec.name, grant, now, renew=True, max_hold=spec.max_hold)
    tenure.batch = batch
    tenure.deadline = min(batch.trusted, tenure.ends)
    tenure.due, tenure.ttl, tenure.confirmed = before.due, before.ttl, before.confirmed
    tenure.under_way, tenure.failure, tenure.doubtful = before.under_way, before.failure, before.doubtful
    tenure.taker = waiter.taker
    return tenure
