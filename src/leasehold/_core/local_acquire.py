"""Waiting in the local queue, from the side of one call: wait here, wait for all in the store, be served, leave.

`local_queue` decides who is served and who is the delegate; here a call does what follows for itself.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from leasehold._core.attempt import Attempt
from leasehold._core.events import Acquired
from leasehold._core.release import give_back
from leasehold._log import is_logged, logger
from leasehold._record import replace
from leasehold.errors import BackendUnavailable
from leasehold.spi import Place
from leasehold.values import Grant, Refusal

if TYPE_CHECKING:
    from leasehold._core.batch import LocalTenure
    from leasehold._core.local_queue import LocalQueues, LocalWaiter
    from leasehold._core.tenure import Tenure
    from leasehold._face.lock_spec import LockSpec

__all__ = ["LocalAttempt"]

LONGEST_WAIT = 3600.0  # a waiter without a timeout looks again after so long


class LocalAttempt(Attempt):
    """A call that may wait in a local queue."""

    __slots__ = ()

    @property
    def spec(self) -> LockSpec:
        """What it wants."""
        return self._spec

    def adopt(self, other: Any) -> None:
        """Take over the claim of another call, which has a place in the store."""
        self._claim, self._doubt = other._claim, other._doubt  # noqa: SLF001 - of the same kind
        self._silent, self._traceless = other._silent, False  # noqa: SLF001
        other.give_up_claim()

    def give_up_claim(self) -> None:
        """The claim is not this call's to withdraw any more."""
        self._traceless = True

    async def wait_in_queue(self, local: LocalQueues) -> Tenure | None:
        """Wait to be served; None to go round again, because the queue was given up or the tenure ran out."""
        waiter = self.waiter
        assert waiter is not None  # noqa: S101 - for the type checker
        while (tenure := local.look(waiter)) is None:
            if waiter.is_sent_away:
                self._go_alone(local)
                return None
            if waiter.queue.delegate is waiter:
                await self._be_the_delegate(local, waiter)
            else:
                await self._wait_to_be_served(waiter, math.inf)
        return await self._pick_up(local, tenure)

    async def handle(self, local: LocalQueues, answer: Grant | Place | Refusal) -> None:
        """What the store has answered to the delegate."""
        waiter = self.waiter
        assert waiter is not None  # noqa: S101 - for the type checker
        if isinstance(answer, Place):
            local.keep_place(waiter, answer)
        elif isinstance(answer, Refusal):
            self._refusal = waiter.queue.refusal = answer
            if self._doubt:  # an earlier copy of the request may still arrive, and would take the lock without a holder
                await self._withdraw(self._claim)
            self.go_on()
        else:
            since = self._sent if answer.since is None else answer.since
            if not local.serve(waiter, answer, since, doubtful=self._doubt):
                logger.warning("a grant of %r ran out before it arrived; trying again", self._spec.name)
                await self._withdraw(self._claim)
                self.go_on()

    async def give_up(self, local: LocalQueues, waiter: LocalWaiter | None, *, store_failed: bool) -> None:
        """The call has failed: leave the queue, and nothing in the store. May be repeated."""
        if waiter is not None and store_failed and waiter.queue.delegate is waiter:
            local.send_away(waiter.queue)
        local.leave(self)
        tenure = None if waiter is None else waiter.tenure
        if tenure is not None and not local.pass_on(tenure):
            await give_back(self._opened, tenure)
        if not self._traceless:
            await self._withdraw(self._claim)

    async def _be_the_delegate(self, local: LocalQueues, waiter: LocalWaiter) -> None:
        """One step in the store's queue: take a place there, or wait for the turn and ask."""
        store: Any = self._backend  # with FIFO it is a `Queueing`
        place = waiter.queue.place
        if place is None:
            if (until := local.rests_until(waiter)) > 0.0:
                if until < math.inf:
                    await self._wait_to_be_served(waiter, until)
                return
            # It may be granted at once, and others wait behind it.
            self._claim = claim = replace(self._fresh_claim(), spare=waiter.queue.fences_wanted)
            await self.handle(local, await self._send(store.join, claim))
            return
        local.keep_place(waiter, place)  # it may be another's so far
        await self._wait_for_turn(place)
        waiter.queue.refusal = self._refusal
        if local.may_ask(waiter):
            await self.handle(local, await self._send(store.turn, place))

    async def _wait_to_be_served(self, waiter: LocalWaiter, until: float) -> None:
        queue, spec = waiter.queue, self._spec
        self._refusal = queue.refusal or Refusal(spec.key, spec.holder)
        now = self._runtime.now()
        if now >= self._deadline and queue.failure is not None:
            raise BackendUnavailable(queue.failure, name=spec.name, backend=self._backend.label)
        self.go_on()
        is_slow = not self._warned and now >= self._started + spec.slow_wait  # as `wake` is computed: no rounding
        ahead = queue.ahead_of(waiter) if is_slow or self._how.on_wait is not None else None
        self._warn_if_slow(now, ahead)
        wake = min(self._deadline, now + LONGEST_WAIT, until)
        if not self._warned:
            wake = min(wake, self._started + spec.slow_wait)
        await self._wait(waiter.signal, wake, ahead)

    async def _pick_up(self, local: LocalQueues, tenure: LocalTenure) -> Tenure | None:
        """The lock is ours. A place that no one else needs is given up; a tenure that is over by now is not used."""
        opened = self._opened
        local.leave(self)
        try:
            if not self._traceless:
                await self._withdraw(self._claim)
        except GeneratorExit:
            raise
        except BaseException:
            await self._runtime.shielded(lambda: give_back(opened, tenure))
            raise
        if opened.keeper.decide(tenure) is not None:
            await give_back(opened, tenure)
            return None
        if opened.events.listeners or is_logged(Acquired.level):
            self._report_acquired(tenure.grant)
        return tenure

    def _go_alone(self, local: LocalQueues) -> None:
        """The delegate failed: from now on this call asks the store for itself, for as long as a new one would."""
        local.leave(self)
        self.is_alone = True
        if self._deadline == math.inf:
            self._limit = self._runtime.now() + self._opened.connect_timeout
