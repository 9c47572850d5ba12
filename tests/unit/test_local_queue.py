"""The local queue: calls of one client that wait for one lock; requests are counted, the clock is turned by hand."""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from leasehold import (
    AcquireTimeout,
    BackendRejected,
    BackendUnavailable,
    ClientClosed,
    ConfigurationError,
    LeaseLost,
    events,
)
from leasehold._core import batch
from leasehold._core.local_queue import LocalQueue, LocalWaiter
from leasehold.testing import ManualStore
from leasehold.values import Grant, Loss, LossReason
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold import AsyncLease


class Scene:
    """One client whose calls wait for the lock x, which another client holds at first."""

    def __init__(self) -> None:
        self.store = ManualStore(autojump=None)
        self.client = self.store.connect_async(ttl=30)
        self.other = self.store.connect_async(ttl=30)
        self.tasks: list[asyncio.Task[AsyncLease]] = []
        self.asked: list[events.Event] = []
        self.client.on_event(self.asked.append)

    @property
    def calls(self) -> list[str]:
        """The requests that the store has got."""
        return self.store.faults.calls

    @property
    def line(self) -> LocalQueue:
        """Who stands in line."""
        assert self.client._opened is not None
        assert self.client._opened.local is not None
        found = self.client._opened.local.queues["leasehold:x"]
        assert isinstance(found, LocalQueue)
        return found

    def is_empty(self) -> bool:
        """Whether the client remembers no line."""
        assert self.client._opened is not None
        assert self.client._opened.local is not None
        return not self.client._opened.local.queues

    async def come(self, number: int, timeout: float | None = None, **options: Any) -> None:
        """So many more calls wait, one after the other."""
        for _ in range(number):
            self.tasks.append(asyncio.create_task(self.client.lock("x", **options).acquire(timeout)))
            await self.until(lambda: self.waiting == len([task for task in self.tasks if not task.done()]))

    @property
    def waiting(self) -> int:
        """How many calls of the client wait."""
        return 0 if self.client._opened is None else self.client._opened.waiting_calls.number

    async def batch(self, number: int, **options: Any) -> AsyncLease:
        """So many come; the first of them has the lock then, and the others are its batch."""
        held = await self.other.lock("x").acquire()
        await self.come(number, **options)
        await held.release()
        first = await self.tasks[0]
        if number > 1:
            await self.until(lambda: self.line.is_resting or self.line.place is not None)
        return first

    async def until(self, condition: Callable[[], object]) -> None:
        for _ in range(2000):
            if condition():
                return
            await asyncio.sleep(0)
        raise AssertionError("it never came to that")

    async def in_the_store(self) -> tuple[list[int], int]:
        """The fences that hold the lock, and how many wait for it."""
        state = await self.other.inspect("x")
        return ([], 0) if state is None else ([held.fence for held in state.holdings], len(state.waiting))


def story(test: Callable[[Scene], Awaitable[None]]) -> Callable[[], None]:
    @functools.wraps(test)
    def run() -> None:
        async def play() -> None:
            scene = Scene()
            await test(scene)
            for task in scene.tasks:
                task.cancel()
            await asyncio.gather(*scene.tasks, return_exceptions=True)
            with (
                pytest.warns(ResourceWarning) if scene.client._opened and scene.client._opened.keeper.held else _as_is()
            ):
                await scene.client.close()
            await scene.other.close()

        asyncio.run(play())

    del run.__wrapped__  # pytest would look for a fixture
    return run


class _as_is:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


@story
async def test_those_who_wait_share_one_place_and_are_served_in_order_without_a_request(scene: Scene) -> None:
    lease = await scene.batch(5)
    assert (await scene.in_the_store())[1] == 0, "a batch is going to serve them all"
    before, fences = len(scene.calls), [lease.fence]
    for task in scene.tasks[1:]:
        assert not task.done()
        assert await lease.release() is True
        lease = await task
        fences.append(lease.fence)
    assert fences == list(range(fences[0], fences[0] + 5))
    assert [verb for verb in scene.calls[before:] if verb != "inspect"] == []
    assert (await scene.in_the_store()) == ([fences[0]], 0)
    await lease.renew()
    assert (await scene.in_the_store()) == ([fences[-1]], 0)
    assert await lease.release() is True
    assert (await scene.in_the_store()) == ([], 0)
    assert scene.is_empty()


@story
async def test_a_burst_of_calls_sends_two_requests_to_join(scene: Scene) -> None:
    held = await scene.other.lock("x").acquire()
    scene.store.faults.suspending = True
    scene.tasks = [asyncio.create_task(scene.client.lock("x").acquire()) for _ in range(50)]
    await scene.until(lambda: scene.waiting == 50)
    assert scene.calls.count("join") == 2  # the holder's and the delegate's
    await held.release()
    for task in scene.tasks:
        await (await task).release()
    assert scene.calls.count("join") <= 4


@story
async def test_a_lock_without_waiters_is_asked_for_as_before(scene: Scene) -> None:
    lease = await scene.client.lock("x").acquire()
    assert scene.is_empty()
    await lease.release()
    assert scene.calls == ["join", "release"]


@story
async def test_who_comes_after_the_grant_waits_for_the_next_one(scene: Scene) -> None:
    held = await scene.other.lock("x").acquire()
    await scene.come(2)
    elsewhere = asyncio.create_task(scene.other.lock("x").acquire())
    await scene.until(lambda: scene.calls.count("join") == 3)
    await held.release()
    first = await scene.tasks[0]
    await scene.come(1)
    await first.release()
    second = await scene.tasks[1]
    assert second.fence == first.fence + 1
    await second.release()
    third = await elsewhere
    assert third.fence > first.fence + 64
    assert not scene.tasks[2].done()
    await third.release()
    await (await scene.tasks[2]).release()


@story
async def test_strict_order_is_kept_across_clients(scene: Scene) -> None:
    held = await scene.other.lock("x").acquire()
    await scene.come(1, fair="strict")
    elsewhere = asyncio.create_task(scene.other.lock("x").acquire())
    await scene.until(lambda: scene.calls.count("join") == 3)
    await scene.come(1, fair="strict")
    await held.release()
    await (await scene.tasks[0]).release()
    between = await elsewhere
    assert not scene.tasks[1].done()
    await between.release()
    await (await scene.tasks[1]).release()


@story
async def test_fair_is_one_of_two_words(scene: Scene) -> None:
    with pytest.raises(ConfigurationError, match="'batches' or 'strict', not 'always'"):
        scene.client.lock("x", fair="always")  # type: ignore[arg-type]


@story
async def test_a_batch_ends_after_its_time(scene: Scene) -> None:
    first = await scene.batch(3)
    scene.store.clock.advance(batch.LONGEST)
    before = scene.calls.count("release")
    await first.release()
    assert scene.calls.count("release") == before + 1
    second = await scene.tasks[1]
    assert second.fence > first.fence + 64
    await second.release()


@story
async def test_a_batch_ends_after_so_many(scene: Scene) -> None:
    lease = await scene.batch(batch.MOST + 3)
    first, before = lease.fence, scene.calls.count("release")
    for task in scene.tasks[1 : batch.MOST + 1]:
        await lease.release()
        lease = await task
    assert lease.fence == first + batch.MOST
    assert scene.calls.count("release") == before
    await lease.release()
    assert scene.calls.count("release") == before + 1
    assert (await scene.tasks[batch.MOST + 1]).fence > first + batch.MOST


@story
async def test_a_lease_with_less_than_half_its_time_is_not_passed_on(scene: Scene) -> None:
    longest, batch.LONGEST = batch.LONGEST, 1000.0
    try:
        first = await scene.batch(2, ttl=30)
        assert scene.client._opened is not None
        first._tenure.due = 1e9  # no renewal
        scene.store.clock.advance(16)
        before = scene.calls.count("release")
        await first.release()
        assert scene.calls.count("release") == before + 1
    finally:
        batch.LONGEST = longest


@story
async def test_each_holder_has_a_max_hold_of_its_own(scene: Scene) -> None:
    first = await scene.batch(2, max_hold=5)
    scene.store.clock.advance(0.04)
    await first.release()
    second = await scene.tasks[1]
    assert second.fence == first.fence + 1
    assert second.remaining() == pytest.approx(5)
    scene.store.clock.advance(4)
    second.check()
    scene.store.clock.advance(1)
    with pytest.raises(LeaseLost) as lost:
        second.check()
    assert lost.value.reason is LossReason.MAX_HOLD


@story
async def test_a_lease_that_was_passed_on_is_over(scene: Scene) -> None:
    first = await scene.batch(2)
    waiting = asyncio.create_task(first.lost.wait())
    await asyncio.sleep(0)
    await first.release()
    second = await scene.tasks[1]
    assert first.remaining() == 0
    assert await first.release() is False
    assert await waiting is False
    with pytest.raises(LeaseLost):
        first.check()
    second.check()
    assert second.abandoned is False


@story
async def test_a_cancelled_waiter_is_not_served(scene: Scene) -> None:
    first = await scene.batch(3)
    scene.tasks[1].cancel()
    await asyncio.wait([scene.tasks[1]])
    await first.release()
    third = await scene.tasks[2]
    assert third.fence == first.fence + 1
    await third.release()
    assert await scene.in_the_store() == ([], 0)


@story
async def test_a_waiter_that_is_cancelled_when_it_is_served_passes_the_lock_on(scene: Scene) -> None:
    first = await scene.batch(3)
    await first.release()
    scene.tasks[1].cancel()
    third = await scene.tasks[2]
    assert third.fence == first.fence + 2
    await third.release()
    assert await scene.in_the_store() == ([], 0)


@story
async def test_the_last_waiter_that_is_cancelled_when_it_is_served_releases_the_lock(scene: Scene) -> None:
    first = await scene.batch(2)
    await first.release()
    scene.tasks[1].cancel()
    await asyncio.wait([scene.tasks[1]])
    assert await scene.in_the_store() == ([], 0)
    assert scene.is_empty()


@story
async def test_a_delegate_that_leaves_hands_its_place_over(scene: Scene) -> None:
    held = await scene.other.lock("x").acquire()
    await scene.come(3)
    before = len(scene.calls)
    scene.tasks[0].cancel()  # which was the first to come, and has the place
    await asyncio.wait([scene.tasks[0]])
    assert scene.calls[before:] == []
    assert await scene.in_the_store() == ([held.fence], 1)
    await held.release()
    await (await scene.tasks[1]).release()
    await (await scene.tasks[2]).release()


@story
async def test_a_delegate_in_doubt_withdraws_its_claim_and_another_one_joins(scene: Scene) -> None:
    held = await scene.other.lock("x").acquire()
    await scene.come(2)
    scene.store.faults.suspending = True
    scene.line.place.signal.set()  # type: ignore[union-attr]
    await scene.until(lambda: scene.calls[-1] == "turn")
    scene.tasks[0].cancel()
    await asyncio.wait([scene.tasks[0]])
    await scene.until(lambda: scene.calls.count("join") == 3)
    assert "withdraw" in scene.calls
    await held.release()
    await (await scene.tasks[1]).release()


@story
async def test_a_timeout_names_the_holder(scene: Scene) -> None:
    held = await scene.other.lock("x").acquire()
    await scene.come(1)
    await scene.come(1, timeout=5)
    scene.store.clock.advance(5)
    with pytest.raises(AcquireTimeout) as timeout:
        await scene.tasks[1]
    assert timeout.value.holder == held.holder
    assert timeout.value.waited == pytest.approx(5)
    await held.release()


@story
async def test_a_lease_that_is_lost_ends_its_batch_and_the_others_get_the_lock_from_the_store(scene: Scene) -> None:
    first = await scene.batch(3)
    assert await scene.other.break_lock("x", fence=first.fence, reason="stuck", now=True)
    with pytest.raises(LeaseLost):
        await first.renew()
    await first.release()
    second = await scene.tasks[1]
    assert second.fence > first.fence + 64
    assert second.abandoned is True
    await second.release()


@story
async def test_a_lease_that_is_dropped_ends_its_batch(scene: Scene) -> None:
    fence = (await scene.batch(2)).fence
    del scene.tasks[0]
    gc.collect()
    for _ in range(35):
        scene.store.clock.advance(1)
        await asyncio.sleep(0.001)
    second = await scene.tasks[0]
    assert second.fence > fence + 64
    assert second.abandoned is True


@story
async def test_other_terms_have_a_place_of_their_own(scene: Scene) -> None:
    held = await scene.other.lock("x").acquire()
    await scene.come(1)
    for options in ({"ttl": 20}, {"reentrant": True}, {"renew": False}, {"min_hold": 1}, {"reason": "other"}):
        await scene.come(1, **options)
    assert (await scene.in_the_store())[1] == 6
    await held.release()


@story
async def test_a_delegate_whose_request_is_under_way_is_passed_over(scene: Scene) -> None:
    first = await scene.batch(3)
    await first.release()
    second = await scene.tasks[1]
    delegate = scene.line.delegate
    assert delegate is not None
    scene.line.is_asking = True  # as while its request is under way
    assert scene.line.waiting[0] is delegate
    before = scene.calls.count("release")
    await second.release()
    assert scene.calls.count("release") == before + 1
    scene.line.is_asking = False
    delegate.signal.set()
    await scene.tasks[2]


@story
async def test_a_delegate_that_a_batch_may_serve_takes_a_place_when_the_batch_has_had_its_time(
    scene: Scene,
) -> None:
    await scene.batch(3)
    before = scene.calls.count("join")
    scene.store.clock.advance(batch.LONGEST * 0.99)
    await asyncio.sleep(0)
    assert scene.calls.count("join") == before
    scene.store.clock.advance(batch.LONGEST * 0.01)
    await scene.until(lambda: scene.line.place is not None)
    assert scene.calls.count("join") == before + 1


@story
async def test_who_comes_during_a_batch_takes_the_place_for_the_next_and_all_of_the_batch_are_served(
    scene: Scene,
) -> None:
    """A request of the last one kept it from being served: four threads in turn had three grants a batch."""
    first = await scene.batch(4)
    joins = scene.calls.count("join")
    await scene.come(1)
    await scene.until(lambda: scene.line.place is not None)
    assert scene.calls.count("join") == joins + 1
    lease, releases = first, scene.calls.count("release")
    for task in scene.tasks[1:4]:
        await lease.release()
        lease = await task
    assert lease.fence == first.fence + 3
    assert scene.calls.count("release") == releases
    await lease.release()
    assert scene.calls.count("release") == releases + 1
    assert (await scene.tasks[4]).fence > lease.fence


@story
async def test_a_batch_that_ends_early_has_its_delegate_take_a_place_at_once(scene: Scene) -> None:
    first = await scene.batch(3)
    assert scene.line.batch is not None
    scene.line.batch.left = 0
    await first.release()
    await scene.until(scene.tasks[1].done)
    await (await scene.tasks[1]).release()
    await (await scene.tasks[2]).release()
    assert await scene.in_the_store() == ([], 0)


@story
async def test_a_delegate_that_rests_and_gives_up_leaves_nothing(scene: Scene) -> None:
    first = await scene.batch(3)
    before = len(scene.calls)
    scene.tasks[2].cancel()
    await asyncio.wait([scene.tasks[2]])
    assert scene.calls[before:] == []
    await scene.until(lambda: scene.line.delegate is not None)
    assert scene.line.delegate in scene.line.waiting
    await first.release()
    await (await scene.tasks[1]).release()
    assert await scene.in_the_store() == ([], 0)
    assert scene.is_empty()


@story
async def test_a_renewal_under_way_is_one_of_the_next_holder(scene: Scene) -> None:
    first = await scene.batch(2)
    known = scene.client._opened.keeper._known[first._tenure.number]  # type: ignore[union-attr]
    renewals = scene.client._opened.keeper.renewals  # type: ignore[union-attr]
    first._tenure.renewal_sent(scene.store.clock.now(), 5.0)
    due, sent = [(known, first._tenure.grant)], scene.store.clock.now()
    scene.store.clock.advance(0.01)
    await first.release()
    second = await scene.tasks[1]
    before = second.remaining()
    await renewals.renew(due, sent + 0.005)
    assert second.remaining() == pytest.approx(before + 0.005)
    assert second._tenure.under_way == 0


@story
async def test_a_renewal_that_is_refused_for_its_outdated_fence_ends_nothing(scene: Scene) -> None:
    first = await scene.batch(2)
    keeper = scene.client._opened.keeper  # type: ignore[union-attr]
    known = keeper._known[first._tenure.number]
    first._tenure.renewal_sent(scene.store.clock.now(), 5.0)
    old: Grant = first._tenure.grant
    await first.release()
    second = await scene.tasks[1]
    await second.renew()  # from now on the store refuses the fence before
    (answer,) = scene.store.memory.renew([old])
    assert isinstance(answer, Loss)
    assert second._tenure.due > scene.store.clock.now()
    await keeper.renewals.renew([(known, old)], scene.store.clock.now())
    assert second._tenure.due == scene.store.clock.now(), "what the store refused was meant for it, so it asks at once"
    assert not second._tenure.under_way
    second.check()
    await second.renew()


@story
async def test_a_store_that_fails_the_delegate_is_asked_by_each_of_the_others(scene: Scene) -> None:
    held = await scene.other.lock("x").acquire()
    await scene.come(1, timeout=3)
    await scene.come(2, timeout=30)
    scene.store.faults.refuse_next("turn")
    scene.store.faults.refuse_next("turn")
    scene.store.faults.reject_next("turn")
    scene.line.place.signal.set()  # type: ignore[union-attr]
    for _ in range(40):
        scene.store.clock.advance(0.05)
        await asyncio.sleep(0.001)
    with pytest.raises(BackendRejected):
        await scene.tasks[0]
    await scene.until(scene.is_empty)
    await scene.until(lambda: scene.calls.count("join") == 4)
    await held.release()


@story
async def test_a_waiter_whose_time_is_over_while_the_store_is_away_learns_that(scene: Scene) -> None:
    held = await scene.other.lock("x").acquire()
    await scene.come(1)
    await scene.come(1, timeout=1)
    for _ in range(60):
        scene.store.faults.refuse_next("turn")
    scene.line.place.signal.set()  # type: ignore[union-attr]
    for _ in range(30):
        scene.store.clock.advance(0.05)
        await asyncio.sleep(0.001)
    with pytest.raises(BackendUnavailable):
        await scene.tasks[1]
    await held.release()


@story
async def test_a_waiter_whose_time_is_over_when_the_store_is_back_was_only_kept_by_the_holder(scene: Scene) -> None:
    held = await scene.other.lock("x").acquire()
    await scene.come(1)
    await scene.come(1, timeout=1)
    scene.store.faults.refuse_next("turn")
    scene.line.place.signal.set()  # type: ignore[union-attr]
    await scene.until(lambda: scene.line.failure is not None)
    scene.store.clock.advance(0.5)
    await scene.until(lambda: scene.line.place is not None)
    scene.store.clock.advance(0.6)
    with pytest.raises(AcquireTimeout):
        await scene.tasks[1]
    await held.release()


@story
async def test_a_waiter_that_learns_of_the_outage_is_told_of_which_lock_of_which_store(scene: Scene) -> None:
    held = await scene.other.lock("x").acquire()
    await scene.come(1)
    await scene.come(1, timeout=1)
    scene.store.faults.cut()
    scene.line.place.signal.set()  # type: ignore[union-attr]
    await scene.until(lambda: scene.line.failure is not None)
    scene.store.clock.advance(1.1)
    with pytest.raises(BackendUnavailable, match="turn: no answer") as raised:
        await scene.tasks[1]
    assert (raised.value.name, raised.value.backend) == ("x", scene.client.store)
    scene.store.faults.heal()
    await held.release()


@story
async def test_the_outage_of_a_delegate_that_left_is_not_that_of_those_behind_it(scene: Scene) -> None:
    held = await scene.other.lock("x").acquire()
    await scene.come(1)
    await scene.come(1, timeout=5)
    await scene.come(1)  # the last to come is the delegate next
    scene.store.faults.refuse_next("turn")
    scene.line.place.signal.set()  # type: ignore[union-attr]
    await scene.until(lambda: scene.line.failure is not None)
    scene.tasks[0].cancel()
    await asyncio.wait([scene.tasks[0]])
    await scene.until(lambda: scene.line.place is not None)
    scene.store.clock.advance(5.1)
    with pytest.raises(AcquireTimeout):
        await scene.tasks[1]
    await held.release()


@story
async def test_a_waiter_that_gives_up_before_the_store_has_answered_was_kept_by_its_own_process(scene: Scene) -> None:
    scene.store.faults.delay_next_reply(5, "join")
    scene.tasks.append(asyncio.create_task(scene.client.lock("x").acquire()))
    await scene.until(lambda: scene.store.faults.delayed)
    late = asyncio.create_task(scene.client.lock("x").acquire(1))
    await scene.until(lambda: scene.waiting == 1)
    scene.store.clock.advance(1.1)
    with pytest.raises(AcquireTimeout) as raised:
        await late
    assert raised.value.holder == scene.client._holder(None)
    scene.store.clock.advance(5)
    await (await scene.tasks[0]).release()


@story
async def test_a_call_without_end_that_is_sent_away_tries_the_store_for_as_long_as_a_new_one(scene: Scene) -> None:
    held = await scene.other.lock("x", ttl=3600).acquire()
    await scene.come(1)
    await scene.come(1)
    backend: Any = scene.client._open().backend
    asked: list[tuple[float, float]] = []

    async def join(_: object, until: float, /) -> Any:
        asked.append((scene.store.clock.now(), until))
        raise BackendRejected("no rights")

    async def turn(_: object, until: float, /) -> Any:
        raise BackendRejected("no rights")

    scene.store.clock.advance(25)
    await scene.until(lambda: scene.line.place is not None)
    backend.join, backend.turn = join, turn
    scene.line.place.signal.set()  # type: ignore[union-attr]
    for task in scene.tasks:
        with pytest.raises(BackendRejected):
            await task
    assert asked == [(scene.store.clock.now(), scene.store.clock.now() + 10)]
    await held.release()


@story
async def test_closing_ends_all_in_line_and_leaves_nothing(scene: Scene) -> None:
    first = await scene.batch(4)
    with pytest.warns(ResourceWarning):
        await scene.client.close()
    for task in scene.tasks[1:]:
        with pytest.raises(ClientClosed):
            await task
    assert await scene.in_the_store() == ([first.fence], 0)


@story
async def test_every_holder_of_a_batch_has_its_events(scene: Scene) -> None:
    lease = await scene.batch(3)
    for task in scene.tasks[1:]:
        await lease.release()
        lease = await task
    await lease.release()
    fences = [event.fence for event in scene.asked if isinstance(event, events.Acquired)]
    assert [event.fence for event in scene.asked if isinstance(event, events.Released)] == fences
    assert len(fences) == 3
    began = [event.call for event in scene.asked if isinstance(event, events.WaitBegan)]
    assert sorted(event.call for event in scene.asked if isinstance(event, events.Acquired)) == sorted(began)


def test_threads_that_take_a_lock_again_and_again_have_it_one_at_a_time_and_in_order_of_fences() -> None:
    with ManualStore().connect() as client:
        fences: list[int] = []
        inside: list[int] = []

        def work(number: int) -> None:
            for _ in range(50):
                with client.lock("x").hold() as lease:
                    inside.append(number)
                    fences.append(lease.fence)
                    assert inside.pop() == number
                    assert not inside

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(fences) == 400
        assert fences == sorted(set(fences))
        opened = client._twin._opened
        assert opened is not None
        assert opened.local is not None
        eventually(lambda: not opened.local.queues)  # type: ignore[union-attr]


class _Counted(LocalWaiter):
    """A waiter that counts with how many others it was compared."""

    __slots__ = ()
    comparisons = 0
    __hash__ = LocalWaiter.__hash__

    def __eq__(self, other: object) -> bool:
        _Counted.comparisons += 1
        return self is other


def _line_of(number: int) -> tuple[LocalQueue, list[LocalWaiter]]:
    queue = LocalQueue(cast("Any", SimpleNamespace(key="x", ttl=30.0, holder=None)))
    waiters: list[LocalWaiter] = [_Counted(queue, cast("Any", None), cast("Any", None), "") for _ in range(number)]
    queue.waiting.extend(waiters)
    return queue, waiters


def test_a_served_call_does_not_walk_along_the_line_when_it_leaves() -> None:
    queue, (served, *others) = _line_of(1000)
    served.tenure = cast("Any", object())
    queue.waiting.popleft()
    _Counted.comparisons = 0
    queue.drop(served)
    assert list(map(id, queue.waiting)) == list(map(id, others))
    assert _Counted.comparisons <= 2


@pytest.mark.parametrize("place", [0, 1])
def test_a_call_that_was_interrupted_while_it_was_served_leaves_the_line(place: int) -> None:
    queue, waiters = _line_of(4)
    waiters[place].tenure = cast("Any", object())
    queue.drop(waiters[place])
    assert list(map(id, queue.waiting)) == [id(waiter) for waiter in waiters if waiter is not waiters[place]]


def test_a_call_that_gives_up_leaves_the_line_wherever_it_stands() -> None:
    queue, waiters = _line_of(4)
    queue.drop(waiters[2])
    queue.drop(waiters[2])
    assert list(map(id, queue.waiting)) == [id(waiters[0]), id(waiters[1]), id(waiters[3])]
