"""Leaving in order: give back every lease of a client that is being closed, within a bounded time.

First the holders are notified, then waiting calls leave their queues, and only then the locks are given back: the next
holder must not begin while one of ours does not know yet that it is over. A lease whose holder could not be notified in
time (its `on_lost` has not returned) is left to its ttl, which is the safe side.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from leasehold._core import events as happened
from leasehold._core.backoff import GRACE, OUTAGE
from leasehold._core.tenure import notify
from leasehold.errors import BackendError, BackendUnavailable, ClientClosed, OutcomeUnknown
from leasehold.values import Loss, LossReason

if TYPE_CHECKING:
    from leasehold._core.open_client import OpenClient
    from leasehold._core.tenure import Tenure

__all__ = ["depart"]

AT_ONCE = 4  # releases under way at a time: a distant store is not asked one after the other
GIVEN_BACK = Loss(LossReason.GIVEN_BACK, "its client was closed and gave it back, so another holder may have it now")
NOT_NOTIFIED = "its on_lost has not returned"


async def depart(opened: OpenClient, deadline: float, *, freeze: bool = False) -> None:
    """Give everything back. With `freeze` the calls that wait leave their queues, but do not end."""
    if freeze:
        opened.waiting_calls.freeze()
    else:
        opened.waiting_calls.close()
    await opened.runtime.shielded(_Departure(opened, deadline, freeze=freeze).perform)


class _Departure:
    """One of them. `perform` may be started again: it goes on where it was interrupted."""

    def __init__(self, opened: OpenClient, deadline: float, *, freeze: bool) -> None:
        self._opened = opened
        self._runtime = opened.runtime
        self._deadline = deadline
        self._freeze = freeze  # calls that wait do not end by themselves
        self._ended: list[Tenure] | None = None
        self._has_notified = False
        self._left: deque[Tenure] = deque()  # to be given back

    async def perform(self) -> None:
        """End the leases, notify their holders, then give the locks back."""
        opened, now = self._opened, self._runtime.now()
        half = now + max(0.0, self._deadline - now) / 2
        if self._ended is None:
            self._ended = opened.keeper.end_all(GIVEN_BACK)
        if not self._has_notified:
            notified = await self._notify(self._ended, half)
            self._has_notified = True
            self._left.extend(notified)
            for tenure in set(self._ended).difference(notified):
                self._report_failure(tenure, NOT_NOTIFIED)
        patience = min(GRACE, opened.close_patience)
        until = min(half, self._runtime.now() + patience)
        await (opened.waiting_calls.leave(half) if self._freeze else opened.waiting_calls.finish(until))
        helpers = [
            self._runtime.spawn(self._give_back_all(), "leasehold leaving")
            for _ in range(min(AT_ONCE, len(self._left)) - 1)
        ]
        await self._give_back_all()
        for helper in helpers:
            await helper.join(self._deadline)

    async def _notify(self, ended: list[Tenure], deadline: float) -> list[Tenure]:
        """Notify the holders of these leases; returns those that were notified by the deadline."""
        notified = [tenure for tenure in ended if not tenure.watchers]
        watched = [tenure for tenure in ended if tenure.watchers]

        async def notify_each() -> None:
            for tenure in watched:
                await notify([tenure])
                notified.append(tenure)

        if watched:
            await self._runtime.spawn(notify_each(), "leasehold loss").join(deadline)
        return list(notified)

    async def _give_back_all(self) -> None:
        while True:
            try:
                tenure = self._left.popleft()
            except IndexError:  # the others took the rest
                return
            try:
                await self._give_back(tenure)
            except BaseException:
                self._left.appendleft(tenure)  # interrupted: `perform` is started again, and a release may be repeated
                raise

    async def _give_back(self, tenure: Tenure) -> None:
        """Release one lock; a store that does not answer is tried until the deadline."""
        runtime, limit, failures = self._runtime, min(self._deadline, tenure.deadline), 0
        failure: BackendError | ClientClosed | None = None
        while runtime.now() < limit:
            try:
                freed = await self._release(tenure)
            except (BackendUnavailable, OutcomeUnknown) as error:
                failure = error
                await runtime.sleep(max(0.0, min(OUTAGE.delay(failures, runtime.random()), limit - runtime.now())))
                failures += 1
            except (BackendError, ClientClosed) as error:
                failure = error
                break
            else:
                if not tenure.is_parked:  # that was reported when the program released it
                    self._opened.events.released(tenure.name, tenure.grant.fence, freed)
                return
        self._report_failure(tenure, str(failure or "there was no time left for it"))

    async def _release(self, tenure: Tenure) -> bool:
        backend = self._opened.backend
        try:
            answer = await backend.release(tenure.grant, self._deadline)
        except OutcomeUnknown:
            tenure.perhaps_freed = True
            raise
        if tenure.doubtful:  # a copy of its claim may still be under way, and would take the lock without a holder
            await backend.withdraw(tenure.grant.claim, self._deadline)
        return answer is True or (answer is False and tenure.perhaps_freed)

    def _report_failure(self, tenure: Tenure, why: str) -> None:
        self._opened.events.emit(happened.ReleaseFailed(tenure.name, why, is_final=True, fence=tenure.grant.fence))
