"""The local queue: calls of one client that wait for one lock wait here, and one for all of them in the store's queue.

That one is the *delegate*.

A grant out of the store's queue belongs to the first waiter, and with it a *batch*: all that waited here when the store
granted, at most `batch.MOST` and for at most `batch.LONGEST` seconds. A release inside the batch passes the tenure on
without a request, under the next of the fences that the store keeps free behind that of the grant (`Grant.spare`): it
is higher than the one before, and lower than that of any other grant. Then the lock goes back to the store, where
other clients wait. So a waiter elsewhere is overtaken by one batch at most.

Whenever calls wait here, one of them is the delegate, also during a batch. So nothing has to be done for
the others when a tenure is lost, broken or dropped: their place in the store comes to its turn. A delegate that a batch
is going to serve asks for a place only when the batch has ended or its time is over: a request under way would keep it
from being served. A call that comes meanwhile is the delegate instead, and asks at once.

The delegate is the last to arrive, as far as there is a choice: it is served last here, and a place changes hands only
when its delegate leaves. Everything below that decides runs under the keeper's guard.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from leasehold._core.batch import MOST, first_tenure, next_tenure
from leasehold._core.states import HELD, State
from leasehold.spi import Embedded, Place
from leasehold.values import Capability

if TYPE_CHECKING:
    from collections.abc import Hashable

    from leasehold._core.batch import Batch, LocalTenure
    from leasehold._core.keeper import Keeper
    from leasehold._core.waiting_calls import WaitingCalls
    from leasehold._face.lock_spec import LockSpec
    from leasehold.spi import Backend, Runtime, Signal
    from leasehold.values import Grant, Holder, Refusal

__all__ = ["LocalQueue", "LocalQueues", "LocalWaiter", "local_queues"]

SWEEP_AT_LEAST = 64


class Call(Protocol):
    """A call of acquire, as far as the local queue knows it."""

    waiter: LocalWaiter | None
    is_alone: bool  # it was sent away once, and does not wait in a local queue again

    @property
    def spec(self) -> LockSpec:
        """What it wants."""

    def adopt(self, other: Call) -> None:
        """Take over the claim of another call, which has a place in the store, and all that is known of it."""

    def give_up_claim(self) -> None:
        """Its claim belongs to a tenure from now on, and is not this call's to withdraw."""


class LocalWaiter:
    """A call that waits in a local queue."""

    __slots__ = ("arrival", "call", "is_sent_away", "queue", "signal", "taker", "tenure")

    def __init__(self, queue: LocalQueue, call: Call, signal: Signal, taker: Hashable) -> None:
        queue.arrivals += 1
        self.queue: LocalQueue = queue
        self.arrival: int = queue.arrivals
        self.call: Call = call
        self.signal: Signal = signal  # the delegate's is that of its place
        self.taker: int = id(taker)
        self.tenure: LocalTenure | None = None  # it was served
        self.is_sent_away: bool = False  # the queue was given up: it has to go to the store by itself


class LocalQueue:
    """The calls that wait for one name."""

    __slots__ = ("arrivals", "batch", "claim_fields", "delegate", "failure", "is_asking", "place", "refusal", "waiting")

    def __init__(self, spec: LockSpec) -> None:
        self.claim_fields: tuple[str, float, Holder] = (spec.key, spec.ttl, spec.holder)
        self.arrivals: int = 0
        self.waiting: deque[LocalWaiter] = deque()
        self.delegate: LocalWaiter | None = None
        self.is_asking: bool = False  # a request of the delegate is under way, and its answer decides
        self.place: Place | None = None  # the delegate's; None while it is asking, or need not have one yet
        self.batch: Batch | None = None  # the last one
        self.refusal: Refusal | None = None  # the last known reason to wait
        self.failure: str | None = None  # why the delegate does not reach the store

    @property
    def is_idle(self) -> bool:
        """Whether it is empty, and no call can come back from a batch."""
        return not self.waiting and self.delegate is None and (self.batch is None or self.batch.is_over())

    @property
    def is_resting(self) -> bool:
        """Whether the delegate leaves the store alone for now, because a batch is going to serve it."""
        return self.delegate is not None and self.place is None and not self.is_asking

    @property
    def fences_wanted(self) -> int:
        """How many fences a batch needs for those that wait, beside that of the first."""
        return min(max(0, len(self.waiting) - 1), MOST)

    def ahead_of(self, waiter: LocalWaiter) -> int:
        """How many come before this one, here and in the store, as far as it is known."""
        place = self.place
        before = 0 if place is None else place.ahead
        return before + (self.waiting.index(waiter) if waiter in self.waiting else 0)

    def drop(self, waiter: LocalWaiter) -> None:
        """Take it out, if it is still there."""
        # A waiter that was served was first or second: to look for it among a thousand would cost a fifth of a grant.
        there = self.waiting if waiter.tenure is None else tuple(islice(self.waiting, 2))
        if waiter in there:
            self.waiting.remove(waiter)

    def next_waiter(self, batch: Batch) -> LocalWaiter | None:
        """The one to be served next by this batch; not a delegate whose request is under way."""
        waiting = self.waiting
        first = waiting[0] if waiting else None
        if first is not None and first is self.delegate and self.is_asking:
            first = waiting[1] if len(waiting) > 1 else None
        return first if first is not None and first.arrival <= batch.last else None


class LocalQueues:
    """The queues of one client, by key."""

    def __init__(self, runtime: Runtime, backend: Backend, keeper: Keeper, waiting_calls: WaitingCalls) -> None:
        self._runtime = runtime
        self._keeper = keeper
        self._waiting_calls = waiting_calls
        self.queues: dict[str, LocalQueue | Call] = {}  # a call: it has sent its first request, and there is no waiter
        # The requests of a store without a server are so short that no second one comes meanwhile.
        self.marks: bool = not isinstance(backend, Embedded)
        self._sweep_at = SWEEP_AT_LEAST

    # --- joining

    def enter(self, call: Call) -> bool:
        """Join the queue; False if there is none, and this call has to ask the store. That it does is noted."""
        spec = call.spec
        if call.is_alone or not spec.in_batches:
            return False
        with self._keeper.guard:
            found = self.queues.get(spec.key)
            if found is None:
                if self.marks:
                    self.queues[spec.key] = call
                return False
            queue = self._upgraded(spec.key, found)
            if queue.claim_fields != (spec.key, spec.ttl, spec.holder):
                return False
            waiter = self._append(queue, call)
            call.give_up_claim()  # of an earlier round: the store has nothing of it any more
            if queue.delegate is None or queue.is_resting:
                queue.delegate = waiter
        return True

    def has_become_delegate(self, call: Call, answer: Grant | Place | Refusal) -> bool:
        """Whether a call that asked the store as if alone is the delegate of a queue, now that it has an answer.

        It is if others have queued up behind it meanwhile, or if it has to wait; unless there is a delegate already,
        and then it keeps a place of its own.
        """
        spec = call.spec
        with self._keeper.guard:
            found = self.queues.get(spec.key)
            if call.waiter is None and isinstance(answer, Place):
                if found is call or (found is None and spec.in_batches and not call.is_alone):
                    self._upgraded(spec.key, call)
            elif found is call:
                del self.queues[spec.key]
            if call.waiter is not None and isinstance(answer, Place):
                self.keep_place(call.waiter, answer)
        if len(self.queues) >= self._sweep_at:
            self._sweep()
        return call.waiter is not None

    def look(self, waiter: LocalWaiter) -> LocalTenure | None:
        """What it was served, if it was; another look is worthwhile when its signal is set."""
        with self._keeper.guard:
            if waiter.queue.delegate is not waiter:  # the delegate's signal is also the store's
                waiter.signal.clear()
            return waiter.tenure

    def rests_until(self, waiter: LocalWaiter) -> float:
        """Until when the delegate, which has no place, need not ask the store for one: a batch is going to serve it.

        0: it has to ask now, and until it has the answer it is not served. Infinity: it was served.
        """
        queue = waiter.queue
        with self._keeper.guard:
            if waiter.tenure is not None or queue.delegate is not waiter:
                return math.inf
            until = 0.0 if queue.batch is None else queue.batch.serves_all_until(waiter, self._runtime.now())
            queue.is_asking = not until
            waiter.signal.clear()
        return until

    def may_ask(self, waiter: LocalWaiter) -> bool:
        """Whether the delegate has to ask the store: it was not served. Until it has the answer it is not."""
        queue = waiter.queue
        with self._keeper.guard:
            if waiter.tenure is None:
                queue.place, queue.is_asking = None, True
            return waiter.tenure is None

    def keep_place(self, waiter: LocalWaiter, place: Place) -> None:
        """The delegate has this place in the store."""
        queue = waiter.queue
        with self._keeper.guard:
            queue.place, queue.is_asking, waiter.signal = place, False, place.signal

    def _upgraded(self, key: str, found: LocalQueue | Call) -> LocalQueue:
        """The queue of a key; a call that has only asked so far becomes its first waiter, and its delegate."""
        if isinstance(found, LocalQueue):
            return found
        queue = LocalQueue(found.spec)
        queue.delegate, queue.is_asking = self._append(queue, found), True
        self.queues[key] = queue
        return queue

    def _append(self, queue: LocalQueue, call: Call) -> LocalWaiter:
        waiter = LocalWaiter(queue, call, self._runtime.signal(), self._runtime.current())
        queue.waiting.append(waiter)
        call.waiter = waiter
        return waiter

    # --- being served

    def serve(self, waiter: LocalWaiter, grant: Grant, since: float, *, doubtful: bool) -> bool:
        """The delegate got the lock: it is for the first waiter. False if it came too late to be trusted.

        In the same step the delegate gives up its claim: from then on it is that of the tenure.
        """
        queue = waiter.queue
        with self._keeper.guard:
            now, first = self._runtime.now(), queue.waiting[0]
            tenure = first_tenure(queue, first, grant, since, now)
            if now >= tenure.deadline:
                return False
            tenure.doubtful = doubtful
            self._keeper.admit(tenure, True)  # noqa: FBT003 - see there
            first.signal.set()  # it looks when the guard is free
            waiter.call.give_up_claim()
            first.tenure, queue.batch, queue.is_asking = tenure, tenure.batch, False
            queue.waiting.popleft()
        return True

    def pass_on(self, tenure: LocalTenure) -> bool:
        """Give the tenure to the next one of its batch; False if it has to be given back to the store."""
        batch, keeper = tenure.batch, self._keeper
        queue = batch.queue
        with keeper.guard:
            now = self._runtime.now()
            waiter = queue.next_waiter(batch)
            tenure.settle(now)
            if (
                waiter is None
                or tenure.state is not HELD
                or not batch.passes_on(tenure, now)
                or self._waiting_calls.is_leaving
            ):
                batch.left = 0
                queue.batch = None
                if queue.is_resting:
                    queue.delegate.signal.set()  # type: ignore[union-attr]  # there is one: it rests
                self._forget(queue)
                return False
            following = next_tenure(tenure, waiter, now)
            keeper.succeed(tenure, following)
            waiter.signal.set()  # it looks when the guard is free
            batch.left, batch.present = batch.left - 1, weakref.ref(following)
            waiter.tenure, tenure.state = following, State.RELEASED
            queue.waiting.remove(waiter)  # if an interruption comes before, `leave` does it
        return True

    # --- leaving

    def leave(self, call: Call) -> None:
        """Leave the queue, served or not. A delegate leaves its place, if it has one, to another one.

        If there is no other one, the claim stays with the call, which has to withdraw it.
        """
        key = call.spec.key
        with self._keeper.guard:
            waiter = call.waiter
            if waiter is None:
                if self.queues.get(key) is call:
                    del self.queues[key]
                return
            queue = waiter.queue
            queue.drop(waiter)
            if queue.delegate is waiter:
                self._replace(queue, waiter)
            self._forget(queue)
            call.waiter = None  # last: all of this may be repeated after an interruption

    def _replace(self, queue: LocalQueue, delegate: LocalWaiter) -> None:
        """The last to arrive is the delegate instead, and has the place, unless a request of it is under way."""
        other = queue.waiting[-1] if queue.waiting else None
        if other is None:
            queue.place = None
        else:
            if queue.place is not None:
                other.call.adopt(delegate.call)
            other.signal.set()
        queue.failure, queue.delegate, queue.is_asking = None, other, False

    def send_away(self, queue: LocalQueue) -> None:
        """Give up the queue: the store failed its delegate, and each of the others has to find out for itself."""
        with self._keeper.guard:
            waiting, queue.waiting = list(queue.waiting), deque()
            if self.queues.get(queue.claim_fields[0]) is queue:
                del self.queues[queue.claim_fields[0]]
        for waiter in waiting:
            waiter.is_sent_away = True
            waiter.signal.set()

    def bury(self) -> None:
        """Forget everything in a forked child: the threads that wait here are the parent's."""
        self.queues = {}

    def _forget(self, queue: LocalQueue) -> None:
        if queue.is_idle and self.queues.get(queue.claim_fields[0]) is queue:
            del self.queues[queue.claim_fields[0]]

    def _sweep(self) -> None:
        """Forget queues whose last tenure was lost or dropped, and that no call has asked for since."""
        for queue in list(self.queues.values()):
            if isinstance(queue, LocalQueue):
                with self._keeper.guard:
                    self._forget(queue)
        self._sweep_at = 2 * len(self.queues) + SWEEP_AT_LEAST


def local_queues(runtime: Runtime, backend: Backend, keeper: Keeper, waiting_calls: WaitingCalls) -> LocalQueues | None:
    """The local queues of a client whose store has a queue, and keeps fences free for hand-overs; None for others."""
    if not {Capability.FIFO, Capability.RANGES} <= backend.capabilities:
        return None
    return LocalQueues(runtime, backend, keeper, waiting_calls)
