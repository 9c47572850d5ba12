"""One call of acquire: its deadline, its requests, its waits and how it ends, whichever way it waits.

An answer of the store is granted, refused or unknown. Unknown is never read as no: the same claim is sent again, and if
that brings no answer either, the claim is withdrawn, which also refuses a copy of the request that arrives late.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

from leasehold._core import events as happened
from leasehold._core.backoff import GRACE, OUTAGE
from leasehold._core.self_deadlock import own_hold
from leasehold._core.tenure import Tenure
from leasehold._core.wait_events import AcquireFailed, Refused, WaitBegan
from leasehold._log import is_logged, logger
from leasehold.errors import (
    AcquireTimeout,
    BackendError,
    BackendRejected,
    BackendUnavailable,
    ClientClosed,
    Conflict,
    OutcomeUnknown,
    Paused,
)
from leasehold.values import Claim, Grant, Loss, Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold._backoff import HowToWait
    from leasehold._core.local_queue import LocalWaiter
    from leasehold._core.open_client import OpenClient
    from leasehold._face.lock_spec import LockSpec
    from leasehold.spi import Place, Signal

__all__ = ["Attempt"]

REPORT_EVERY = 1.0  # how often a wait is reported to `on_wait` while nothing changes

S = TypeVar("S")
A = TypeVar("A")
_NO_REFUSAL = Refusal("")


class Attempt:
    """One call of acquire: its deadline, what it has learned so far, and the claim that may have to be withdrawn."""

    __slots__ = ("__weakref__", "_backend", "_claim", "_deadline", "_doubt", "_how", "_limit", "_looked", "_opened",
                 "_refusal", "_rounds", "_runtime", "_sent", "_silent", "_spec", "_started", "_traceless", "_warned",
                 "has_waited", "is_alone", "is_single", "waiter")  # fmt: skip

    def __init__(self, opened: OpenClient, spec: LockSpec, deadline: float, how: HowToWait) -> None:
        self._opened = opened
        self._runtime = opened.runtime
        self._backend = opened.backend
        self._spec = spec
        self._how = how
        self._started = started = opened.runtime.now()
        self._deadline = deadline
        self.is_single = deadline <= started  # there is no time to wait at all
        # Until when a store that fails is tried: a call that would wait for ever has to reach it at least once.
        self._limit = started + opened.connect_timeout if deadline == math.inf else deadline
        self._silent = False  # the last request got no answer
        self.has_waited = False
        self._sent = started  # before the last request left
        self._traceless = True  # the current claim has surely left nothing in the store
        self._doubt = False  # a request of the current claim got no answer, and may still arrive
        self._rounds = 0
        self._looked = False  # whether the wait was compared with what this process holds itself
        self._warned = False
        self._refusal = _NO_REFUSAL  # the last known reason to wait
        self.waiter: LocalWaiter | None = None  # its place in a local queue
        self.is_alone: bool = False  # it does not enter one

    def go_on(self) -> None:
        """Raise the timeout if there is no time for another round."""
        now = self._runtime.now()
        if now >= self._deadline:
            raise self._timed_out(now)

    def _fresh_claim(self) -> Claim:
        """A claim under an owner value of its own, so that a late release of one attempt can never free another."""
        self._traceless, self._doubt = True, False
        spec = self._spec
        self._claim = claim = Claim(
            spec.key, self._runtime.owner(), spec.ttl, spec.mode, spec.capacity, spec.min_hold, spec.holder
        )
        return claim

    async def leave_queue(self) -> None:
        """Leave the store, on behalf of a thread or task that waits on because the process is about to end."""
        if not self._traceless:
            await self._withdraw(self._claim)

    async def _send(self, verb: Callable[[S, float], Awaitable[A]], subject: S) -> A:
        """Send one request until the store answers. A claim may be sent twice: it is one claim to the store."""
        failures = 0
        unknown: OutcomeUnknown | None = None  # a later failure that was surely not applied does not undo the doubt
        while True:
            self._sent = sent = self._runtime.now()
            limit = self._limit
            try:
                answer = await verb(subject, limit if limit - sent >= GRACE else min(sent, limit) + GRACE)
            except (BackendRejected, Conflict) as error:
                error.name = self._spec.name
                raise
            except (BackendUnavailable, OutcomeUnknown) as error:
                error.name = self._spec.name
                self._silent = True
                if isinstance(error, OutcomeUnknown):
                    unknown, self._doubt, self._traceless = error, True, False
                await self._outlast(unknown or error, failures)
                failures += 1
            except BaseException:  # interrupted: the request may be under way
                self._traceless, self._doubt = False, True
                raise
            else:
                self._limit, self._silent, self._traceless = self._deadline, False, False
                if failures:
                    if self.waiter is not None:
                        self.waiter.queue.failure = None
                    self._opened.events.emit(happened.StoreReached(self._spec.name, failures))
                if self._runtime.switches:
                    await self._runtime.switch()
                return answer

    async def _outlast(self, failure: BackendError, failures: int) -> None:
        """Pause before the request is sent again; raises the failure if there is no time for that.

        The last pause ends at the deadline. After the deadline a request is repeated only to learn an unknown outcome.
        """
        now, pause = self._runtime.now(), OUTAGE.delay(failures, self._runtime.random())
        if self.waiter is not None:
            self.waiter.queue.failure = str(failure)  # for those that wait behind this one
        if (back_in := failure.back_in) is not None:  # it was reached, and says when: a call without end waits for that
            self._limit = max(self._limit, min(now + back_in + self._opened.connect_timeout, self._deadline))
        if now < self._limit:
            pause = min(pause, self._limit - now)
            if not failures:
                left = self._limit - now
                self._opened.events.emit(happened.StoreUnreachable(self._spec.name, left, str(failure), back_in))
        elif not isinstance(failure, OutcomeUnknown) or now + pause >= self._limit + GRACE:
            raise failure
        await self._pause(pause)

    async def _pause(self, seconds: float) -> None:
        if not self.has_waited:
            self._begin_to_wait()
        await self._opened.waiting_calls.pause(self, seconds)

    async def _accept(self, claim: Claim, answer: Grant | Refusal) -> Tenure | None:
        """Turn a grant into a tenure, unless it took so long to arrive that it must not be trusted any more."""
        if isinstance(answer, Refusal):
            self._refusal = answer
            if self._doubt:  # an earlier copy of the request may still arrive, and would take the lock without a holder
                await self._withdraw(claim)
            return None
        opened, spec, runtime = self._opened, self._spec, self._runtime
        if answer.ttl < spec.ttl and not spec.renew:  # a short first ttl that no renewal would extend
            confirmed = await self._confirmed(answer)
            if confirmed is None:
                await self._withdraw(claim)
                return None
            answer = confirmed
        since = self._sent if answer.since is None else answer.since
        if spec.make_tenure is None:
            tenure = Tenure(spec.name, answer, since, renew=spec.renew, max_hold=spec.max_hold)
        else:
            tenure = spec.make_tenure(spec.name, answer, since)
        if runtime.now() >= tenure.deadline:
            logger.warning("a grant of %r ran out before it arrived; trying again", spec.name)
            await self._withdraw(claim)
            return None
        tenure.doubtful = self._doubt
        current = opened.current()
        tenure.taker = id(current)
        opened.keeper.admit(tenure)
        if spec.reentrant:
            opened.entered[spec.key, spec.mode, current] = tenure
        if opened.events.listeners or is_logged(happened.Acquired.level):
            self._report_acquired(answer)
        return tenure

    def _report_acquired(self, grant: Grant) -> None:
        spec, waited, call = self._spec, self._runtime.now() - self._started, id(self) if self.has_waited else 0
        self._opened.events.acquired(spec.name, grant.fence, waited, spec.group, spec.mode._value_, call)

    async def _confirmed(self, grant: Grant) -> Grant | None:
        """The same grant for its whole ttl; None if it is over already."""

        async def renew(grants: list[Grant], until: float) -> Grant | Loss:
            (answer,) = await self._backend.renew(grants, until)
            if isinstance(answer, BackendError):
                raise answer
            return answer

        answer = await self._send(renew, [grant])
        return answer if isinstance(answer, Grant) else None

    async def _wait_for_turn(self, place: Place) -> None:
        self._refusal = Refusal(self._spec.key, place.holder, place.retry_after, place.ahead, place.why, place.paused)
        self.go_on()
        now = self._runtime.now()
        self._warn_if_slow(now, place.ahead)
        wake = min(self._deadline, now + place.recheck)
        if not self._warned:
            wake = min(wake, self._started + self._spec.slow_wait)
        await self._wait(place.signal, wake, place.ahead)
        place.signal.clear()

    async def _wait(self, signal: Signal, wake: float, ahead: int | None) -> None:
        """Wait for the signal or until `wake`; meanwhile `on_wait` hears of it at once and every second."""
        if not self.has_waited:
            self._begin_to_wait()
        if self._opened.parked:
            await self._opened.unpark(self._spec.key)
        on_wait, waiting_calls, runtime = self._how.on_wait, self._opened.waiting_calls, self._runtime
        if on_wait is None:
            await waiting_calls.wait(self, signal, wake)
            return
        waiting_calls.begins(self)  # `on_wait` may take its time, and the client be closed meanwhile
        over = False
        while not over:
            now = runtime.now()
            on_wait(None if ahead is None else ahead + 1, self._refusal.holder, now - self._started)
            await waiting_calls.wait(self, signal, min(wake, now + REPORT_EVERY))
            over = signal.is_set() or runtime.now() >= wake

    def _warn_if_slow(self, now: float, ahead: int | None) -> None:
        """One warning for a wait that is long, or that has no end because the waiter itself holds the lock."""
        waited, holder, spec = now - self._started, self._refusal.holder, self._spec
        first, self._looked = not self._looked, True
        slow = now >= self._started + spec.slow_wait  # as the instant to wake at is computed: no rounding between
        if self._warned or not (slow or (first and self._deadline == math.inf)):
            return
        own = own_hold(self._opened, spec, holder)
        if slow or (own is not None and own.itself):
            self._warned = True
            level = spec.slow_wait_level if slow else happened.Waiting.level
            paused = self._refusal.paused
            self._opened.events.emit(
                happened.Waiting(spec.name, waited, holder, ahead, own and own.text, paused), level
            )

    def _timed_out(self, now: float) -> AcquireTimeout:
        name, holder, waited = self._spec.name, self._refusal.holder, now - self._started
        if self._opened.events.wanted(happened.TimedOut):
            self._opened.events.emit(happened.TimedOut(name, waited, *self._facts(), self.is_single))
        time = "at once" if self.is_single else f"within {waited:.3f} s"
        if self._how.backoff is not None and not self.is_single:
            time += f" and {self._rounds + 1} tries"
        own = own_hold(self._opened, self._spec, holder)
        who = f"{holder or 'another holder'}{f' ({own.text})' if own else ''}"
        pause, facts = self._refusal.paused, {"name": name, "backend": self._backend.label}
        retry_after = self._refusal.retry_after
        if pause is not None:
            text = f"could not get {name!r} {time}; it is {pause}"
            return Paused(text, holder=holder, waited=waited, retry_after=retry_after, pause=pause, **facts)
        text = f"could not get {name!r} {time}; {self._refusal.why or f'it is held by {who}'}"
        return AcquireTimeout(text, holder=holder, waited=waited, retry_after=retry_after, **facts)

    def _begin_to_wait(self) -> None:
        self.has_waited = True
        if self._opened.events.wanted(WaitBegan):
            self._opened.events.emit(WaitBegan(self._spec.name, *self._facts()))

    def report_refusal(self) -> None:
        """Tell listeners that a call that does not wait did not get the lock."""
        if self._opened.events.wanted(Refused):
            waited = self._runtime.now() - self._started
            self._opened.events.emit(Refused(self._spec.name, waited, *self._facts()))

    def report_failure(self, error: BaseException) -> None:
        """Tell listeners of an end that is neither a grant nor a timeout, which has an event of its own."""
        if not isinstance(error, AcquireTimeout) and self._opened.events.wanted(AcquireFailed):
            waited, cancelled = self._runtime.now() - self._started, not isinstance(error, Exception)
            text = type(error).__name__ if cancelled else str(error) or type(error).__name__
            self._opened.events.emit(AcquireFailed(self._spec.name, waited, text, cancelled, *self._facts()))

    def _facts(self) -> tuple[str | None, str, int]:
        """Group, mode and number of this call, for events."""
        return self._spec.group, self._spec.mode._value_, id(self) if self.has_waited else 0

    async def _withdraw(self, claim: Claim) -> None:
        """Leave nothing in the store. While the store does not answer, that is left to the background."""
        if self._traceless:
            return
        backend, doubt, name = self._backend, self._doubt, self._spec.name

        async def withdraw(until: float) -> None:
            await backend.withdraw(claim, until, doubt=doubt)

        async def withdraw_now() -> None:
            now = self._runtime.now()
            if not self._silent:
                try:
                    await withdraw(min(now, self._deadline) + GRACE)
                except (BackendUnavailable, OutcomeUnknown):
                    self._silent = True
                except (BackendError, ClientClosed):
                    logger.debug("could not withdraw a claim on %r; its ttl will end it", name, exc_info=True)
            if self._silent:
                self._opened.cleanup.add(name, withdraw, now + claim.ttl)

        await self._runtime.shielded(withdraw_now)
