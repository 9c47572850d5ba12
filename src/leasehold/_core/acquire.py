"""Acquiring a lock: the waiting loops, with one absolute deadline per call.

An answer of the store is granted, refused or unknown. Unknown is never read as no: the same claim is sent again, and if
that brings no answer either, the claim is withdrawn, which also refuses a copy of the request that arrives late.
Whatever ends a call early (a timeout, a cancelled task, an exception out of a signal handler) withdraws the claim too.
No call takes longer than its timeout and `GRACE`: a withdrawal that a silent store leaves open then is left to
`cleanup`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from leasehold._backoff import QUEUE_OR_POLL
from leasehold._core.backoff import CONTENTION
from leasehold._core.fence_repair import repair_fence
from leasehold._core.linger import LingeringAttempt, take_parked
from leasehold._core.local_acquire import LocalAttempt
from leasehold.errors import BackendError
from leasehold.spi import Place

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold._backoff import HowToWait
    from leasehold._core.open_client import OpenClient
    from leasehold._core.tenure import Tenure
    from leasehold._face.lock_spec import LockSpec
    from leasehold.values import Grant, Refusal

__all__ = ["acquire", "try_acquire"]


async def acquire(opened: OpenClient, spec: LockSpec, deadline: float | None, how: HowToWait = QUEUE_OR_POLL) -> Tenure:
    """Wait for the lock until the deadline, an instant of the runtime's clock; None waits for ever."""
    if spec.reentrant and (again := opened.enter_again(spec)) is not None:
        return again
    if opened.parked and (parked := await take_parked(opened, spec)) is not None:
        return parked
    if opened.seen:
        await repair_fence(opened, spec)
    attempt = (_LingeringAttempt if spec.linger else _Attempt)(
        opened, spec, math.inf if deadline is None else deadline, how
    )
    step: Callable[[], Awaitable[Tenure | None]]
    if attempt.is_single:
        step = attempt.try_at_once
    elif how.backoff is None and opened.has_queue:
        step = attempt.queue
    else:
        step = attempt.poll
    try:
        while (tenure := await step()) is None:
            attempt.go_on()  # the place or the grant ran out before it could be trusted: queue again
    except BaseException as error:
        attempt.report_failure(error)
        raise
    finally:
        if attempt.has_waited:
            opened.waiting_calls.ended(attempt)
    return tenure


async def try_acquire(opened: OpenClient, spec: LockSpec) -> Tenure | None:
    """Ask once; None if the lock is not free."""
    deadline = opened.runtime.now()  # giving back what is parked is part of the call
    if spec.reentrant and (again := opened.enter_again(spec)) is not None:
        return again
    if opened.parked and (parked := await take_parked(opened, spec)) is not None:
        return parked
    if opened.seen:
        await repair_fence(opened, spec)
    attempt = (_LingeringAttempt if spec.linger else _Attempt)(opened, spec, deadline, QUEUE_OR_POLL)
    try:
        tenure = await attempt.try_once()
        if tenure is None:
            attempt.report_refusal()
    except BaseException as error:
        attempt.report_failure(error)
        raise
    else:
        return tenure
    finally:
        if attempt.has_waited:
            opened.waiting_calls.ended(attempt)


class _Attempt(LocalAttempt):
    """One call of acquire, and the ways in which it may wait."""

    __slots__ = ()

    async def queue(self) -> Tenure | None:
        """Wait in the store's queue until it is our turn; None if the place or the grant ran out.

        Where others of this client wait for the same lock, one of them waits there for all: see `local_queue`.
        """
        local = self._opened.local
        store: Any = self._backend  # with FIFO it is a `Queueing`
        try:
            if local is not None and (local.queues or local.marks) and local.enter(self):
                return await self.wait_in_queue(local)
            claim = self._fresh_claim()
            answer: Grant | Place | Refusal = await self._send(store.join, claim)
            while isinstance(answer, Place):
                if local is not None and local.has_become_delegate(self, answer):
                    return await self.wait_in_queue(local)
                await self._wait_for_turn(answer)
                answer = await self._send(store.turn, answer)
            if local is not None and local.marks and local.has_become_delegate(self, answer):
                await self.handle(local, answer)
                return await self.wait_in_queue(local)
            return await self._accept(claim, answer)
        except GeneratorExit:  # nothing can be awaited any more; the ttl frees what is left
            if local is not None:
                local.leave(self)
            raise
        except BaseException as error:
            # Not the error itself: a frame that keeps it lives until the garbage collector runs, and all that it holds.
            waiter, store_failed = self.waiter, isinstance(error, BackendError)
            if local is not None:
                await self._runtime.shielded(lambda: self.give_up(local, waiter, store_failed=store_failed))
            else:
                await self._withdraw(self._claim)
            raise

    async def try_at_once(self) -> Tenure:
        """Ask once, and raise the timeout if refused."""
        tenure = await self.try_once()
        if tenure is None:
            raise self._timed_out(self._runtime.now())
        return tenure

    async def poll(self) -> Tenure:
        """Ask, and if refused wait a little, for stores without a queue; once more when the deadline ends a pause."""
        while (tenure := await self.try_once()) is None:
            backoff = self._how.backoff or CONTENTION
            if backoff.is_last(self._rounds):
                raise self._timed_out(self._runtime.now())
            pause = backoff.delay(self._rounds, self._runtime.random())
            if self._how.backoff is None and self._refusal.retry_after is not None:
                pause = min(pause, max(self._refusal.retry_after, 0.001))
            self.go_on()
            self._rounds += 1
            now = self._runtime.now()
            self._warn_if_slow(now, None)
            await self._wait(self._runtime.signal(), min(now + pause, self._deadline), None)
        return tenure

    async def try_once(self) -> Tenure | None:
        """Ask once, without waiting; None if refused."""
        claim = self._fresh_claim()
        try:
            return await self._accept(claim, await self._send(self._backend.try_acquire, claim))
        except GeneratorExit:
            raise
        except BaseException:
            await self._withdraw(claim)
            raise


class _LingeringAttempt(LingeringAttempt, _Attempt):
    """The same for a lock that lingers."""

    __slots__ = ()
