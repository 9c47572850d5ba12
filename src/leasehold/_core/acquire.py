"""Getting a lock and giving it back: the loops, with one absolute deadline per call.

An answer of the store is granted, refused or unknown. Unknown is never read as no: the same claim is asked again, and
if that brings no answer either, the claim is withdrawn, which also refuses a copy of the request that arrives late.
Whatever ends a call early (a timeout, a cancelled task, an exception out of a signal handler) withdraws the claim too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

from leasehold._core import events as happened
from leasehold._core.events import logger
from leasehold._core.lift import lift
from leasehold._core.patience import CONTENTION, OUTAGE
from leasehold._core.tenure import Tenure
from leasehold.errors import (
    AcquireTimeout,
    BackendError,
    BackendRejected,
    BackendUnavailable,
    Conflict,
    OutcomeUnknown,
)
from leasehold.spi import Place
from leasehold.values import Capability, Claim, Grant, Loss, Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold._core.session import Session, Wish

__all__ = ["acquire", "release", "try_acquire"]

SLOW_WAIT = 1.0  # a wait of more than this is worth one warning
RESOLVE = 1.0  # how long an unknown outcome may be asked about beyond the call's own deadline

Q = TypeVar("Q")
A = TypeVar("A")
_NOTHING_HEARD = Refusal("")


async def acquire(session: Session, wish: Wish, deadline: float | None) -> Tenure:
    """Wait for the lock until the deadline, an instant of the runtime's clock; None waits for ever."""
    if session.seen:
        await lift(session, wish)
    attempt = _Attempt(session, wish, math.inf if deadline is None else deadline)
    seat: Callable[[], Awaitable[Tenure | None]]
    if attempt.is_single:
        seat = attempt.ask_at_once
    elif Capability.FIFO in session.backend.capabilities:
        seat = attempt.queue
    else:
        seat = attempt.ask_again
    while (tenure := await seat()) is None:
        attempt.go_on()  # a place or a grant was used up before it could be believed: stand in line again
    return tenure


async def try_acquire(session: Session, wish: Wish) -> Tenure | None:
    """Ask once; None if the lock is not free."""
    if session.seen:
        await lift(session, wish)
    return await _Attempt(session, wish, session.runtime.now()).ask_once()


async def release(session: Session, tenure: Tenure) -> bool:
    """Give the lock back; False if it was already gone. Finishes even when the caller is interrupted.

    When the store does not answer, the lease stays "releasing": it is not renewed, and a second call tries again.
    """
    runtime, keeper = session.runtime, session.keeper
    if not keeper.begin_release(tenure):
        return False

    async def finish() -> bool:
        try:
            freed = await session.backend.release(tenure.grant)
        except (BackendUnavailable, OutcomeUnknown) as error:
            freed = await _release_again(session, tenure, error)
        if tenure.doubtful:  # a copy of the request may still be under way, and must not take the lock for nobody
            await session.backend.withdraw(tenure.grant.claim)
        if runtime.switches:
            await runtime.switch()
        keeper.finish_release(tenure)
        return freed

    freed = await runtime.shielded(finish)
    if session.events.wanted(happened.Released):
        session.events.emit(happened.Released(tenure.name, tenure.grant.fence, freed))
    return freed


async def _release_again(session: Session, tenure: Tenure, failure: BackendError) -> bool:
    """A release may be repeated: it names its grant. After doubt, "gone" most likely means that we freed it."""
    doubt = isinstance(failure, OutcomeUnknown)
    for attempt in range(2):
        if session.runtime.now() >= tenure.deadline:
            break
        await session.runtime.sleep(OUTAGE.delay(attempt, session.runtime.random()))
        try:
            freed = await session.backend.release(tenure.grant)
        except (BackendUnavailable, OutcomeUnknown) as error:
            failure, doubt = error, doubt or isinstance(error, OutcomeUnknown)
        else:
            return freed or (doubt and session.runtime.now() < tenure.deadline)
    raise failure


class _Attempt:
    """One call of acquire: its deadline, what it has learned so far, and the claim that may have to be withdrawn."""

    __slots__ = ("_backend", "_deadline", "_doubt", "_reached", "_refusal", "_rounds", "_runtime", "_sent", "_session",
                 "_started", "_traceless", "_warned", "_wish")  # fmt: skip

    def __init__(self, session: Session, wish: Wish, deadline: float) -> None:
        self._session = session
        self._runtime = session.runtime
        self._backend = session.backend
        self._wish = wish
        self._started = session.runtime.now()
        self._deadline = deadline
        self._reached = False  # the store has answered at least once in this call
        self._sent = self._started  # before the last request left
        self._traceless = True  # the current claim has surely left nothing in the store
        self._doubt = False  # a request of the current claim got no answer, and may still arrive
        self._rounds = 0
        self._warned = False
        self._refusal = _NOTHING_HEARD  # the last thing heard about who is in the way

    @property
    def is_single(self) -> bool:
        """Whether there is no time to wait at all."""
        return self._deadline <= self._started

    async def queue(self) -> Tenure | None:
        """Stand in the store's queue until it is our turn; None if the place or the grant was used up."""
        claim = self._fresh_claim()
        store: Any = self._backend  # with FIFO it is a `Queueing`
        try:
            answer: Grant | Place | Refusal = await self._ask(store.join, claim)
            while isinstance(answer, Place):
                await self._wait_for_turn(answer)
                answer = await self._ask(store.turn, answer)
            return await self._seated(claim, answer)
        except GeneratorExit:
            raise  # nothing can be awaited any more; the ttl frees what is left
        except BaseException:
            await self._withdraw(claim)
            raise

    def go_on(self) -> None:
        """Raise the timeout if there is no time for another round."""
        now = self._runtime.now()
        if now >= self._deadline:
            raise self._timed_out(now)

    async def ask_at_once(self) -> Tenure:
        """Ask once, and raise the timeout if refused."""
        tenure = await self.ask_once()
        if tenure is None:
            raise self._timed_out(self._runtime.now())
        return tenure

    async def ask_again(self) -> Tenure | None:
        """Ask, and if refused wait a little, for stores without a queue; None to go round again."""
        tenure = await self.ask_once()
        if tenure is not None:
            return tenure
        pause = CONTENTION.delay(self._rounds, self._runtime.random())
        if self._refusal.retry_after is not None:
            pause = min(pause, max(self._refusal.retry_after, 0.001))
        self._rounds += 1
        self.go_on()
        now = self._runtime.now()
        self._warn_if_slow(now, None)
        await self._runtime.sleep(min(pause, self._deadline - now))
        return None

    async def ask_once(self) -> Tenure | None:
        """Ask with a fresh owner; None if refused."""
        claim = self._fresh_claim()
        try:
            return await self._seated(claim, await self._ask(self._backend.try_acquire, claim))
        except GeneratorExit:
            raise
        except BaseException:
            await self._withdraw(claim)
            raise

    def _fresh_claim(self) -> Claim:
        """Every attempt has its own owner: a late release of one can then never free another."""
        self._traceless, self._doubt = True, False
        return self._wish.claim(self._runtime.owner())

    async def _ask(self, question: Callable[[Q], Awaitable[A]], subject: Q) -> A:
        """Put one question until the store answers. The same claim may be asked twice: it is one claim to the store."""
        failures = 0
        doubtful_since: float | None = None
        while True:
            self._sent = self._runtime.now()
            try:
                answer = await question(subject)
            except (BackendRejected, Conflict) as error:
                error.name = self._wish.name
                raise
            except (BackendUnavailable, OutcomeUnknown) as error:
                error.name = self._wish.name
                if doubtful_since is None and isinstance(error, OutcomeUnknown):
                    doubtful_since = self._sent
                    self._doubt = True
                self._traceless = self._traceless and not self._doubt
                if not failures:
                    left = self._give_up_at(doubtful_since) - self._runtime.now()
                    self._session.events.emit(happened.StoreUnreachable(self._wish.name, left, str(error)))
                pause = OUTAGE.delay(failures, self._runtime.random())
                failures += 1
                if self._runtime.now() + pause >= self._give_up_at(doubtful_since):
                    raise
                await self._runtime.sleep(pause)
            except BaseException:
                self._traceless = False
                raise
            else:
                self._reached, self._traceless = True, False
                if failures:
                    self._session.events.emit(happened.StoreReached(self._wish.name, failures))
                if self._runtime.switches:
                    await self._runtime.switch()
                return answer

    def _give_up_at(self, doubtful_since: float | None) -> float:
        """Until when to go on after a failure; an unknown outcome earns a little more, to learn what became of it."""
        limit = self._deadline
        if not self._reached:
            limit = min(limit, self._started + self._session.connect_timeout)
        return limit if doubtful_since is None else max(limit, doubtful_since + RESOLVE)

    async def _seated(self, claim: Claim, answer: Grant | Refusal) -> Tenure | None:
        """Turn a grant into a tenure, unless so much time has passed that it must not be believed any more."""
        if isinstance(answer, Refusal):
            self._refusal = answer
            if self._doubt:  # an earlier copy of the request may still arrive, and must not take the lock for nobody
                await self._withdraw(claim)
            return None
        wish = self._wish
        if answer.ttl < wish.ttl and not wish.renew:  # a claim window, and nobody would make more of it
            confirmed = await self._confirmed(answer)
            if confirmed is None:
                await self._withdraw(claim)
                return None
            answer = confirmed
        since = self._sent if answer.since is None else answer.since
        tenure = Tenure(wish.name, answer, since, renew=wish.renew, max_hold=wish.max_hold)
        if self._runtime.now() >= tenure.deadline:
            logger.warning("a grant of %r was used up before it arrived; asking again", self._wish.name)
            await self._withdraw(claim)
            return None
        tenure.doubtful = self._doubt
        self._session.keeper.admit(tenure)
        if self._session.events.wanted(happened.Acquired):
            waited = self._runtime.now() - self._started
            self._session.events.emit(happened.Acquired(wish.name, answer.fence, waited))
        return tenure

    async def _confirmed(self, grant: Grant) -> Grant | None:
        """The same grant for its whole ttl; None if it is over already."""

        async def renew(grants: list[Grant]) -> Grant | Loss:
            (answer,) = await self._backend.renew(grants)
            if isinstance(answer, BackendError):
                raise answer
            return answer

        answer = await self._ask(renew, [grant])
        return answer if isinstance(answer, Grant) else None

    async def _wait_for_turn(self, place: Place) -> None:
        self._refusal = Refusal(self._wish.key, place.holder, None, place.ahead)
        self.go_on()
        now = self._runtime.now()
        self._warn_if_slow(now, place.ahead)
        wake = min(self._deadline, now + place.recheck)
        if not self._warned:
            wake = min(wake, self._started + SLOW_WAIT)
        await self._runtime.wait(place.signal, wake)
        place.signal.clear()

    def _warn_if_slow(self, now: float, ahead: int | None) -> None:
        waited = now - self._started
        if waited >= SLOW_WAIT and not self._warned:
            self._warned = True
            self._session.events.emit(happened.Waiting(self._wish.name, waited, self._refusal.holder, ahead))

    def _timed_out(self, now: float) -> AcquireTimeout:
        name, holder, waited = self._wish.name, self._refusal.holder, now - self._started
        if self._session.events.wanted(happened.TimedOut):
            self._session.events.emit(happened.TimedOut(name, waited))
        time = "at once" if self.is_single else f"within {waited:.3f} s"
        return AcquireTimeout(
            f"could not get {name!r} {time}; it is held by {holder or 'somebody else'}",
            name=name,
            backend=self._backend.label,
            holder=holder,
            waited=waited,
            retry_after=self._refusal.retry_after,
        )

    async def _withdraw(self, claim: Claim) -> None:
        """Leave nothing behind. If the store does not answer, its ttl does it."""
        if self._traceless:
            return

        async def withdraw() -> None:
            await self._backend.withdraw(claim)

        try:
            await self._runtime.shielded(withdraw)
        except BackendError:
            logger.debug("could not withdraw a claim on %r; its ttl will end it", self._wish.name, exc_info=True)
