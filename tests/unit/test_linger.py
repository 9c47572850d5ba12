"""A lock that lingers: kept by its client for a moment after a release; requests are counted, the clock is turned."""

from __future__ import annotations

import asyncio
import functools
import gc
import math
import warnings
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold import BackendError, ConfigurationError, LeaseLost, UnsupportedCapability, events
from leasehold._core.backoff import GRACE
from leasehold._core.batch import MOST
from leasehold._core.linger import LingeringTenure
from leasehold.testing import ManualStore
from leasehold.testing.leaks import held_names
from leasehold.values import Loss, LossReason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold import AsyncLock
    from leasehold._core.open_client import OpenClient


class Scene:
    """A client whose lock x lingers for a fifth of a second, and another one that wants it."""

    def __init__(self) -> None:
        self.store = ManualStore(autojump=None)
        self.client = self.store.connect_async(ttl=30)
        self.other = self.store.connect_async(ttl=30)
        self.heard: list[events.Event] = []
        self.client.on_event(self.heard.append)

    @property
    def calls(self) -> list[str]:
        """The requests that the store has got."""
        return self.store.faults.calls

    @property
    def opened(self) -> OpenClient:
        """The client, open."""
        assert self.client._opened is not None
        return self.client._opened

    @property
    def parked(self) -> LingeringTenure:
        """What lingers."""
        return self.opened.parked["leasehold:x"]

    def lock(self, **options: Any) -> AsyncLock:
        """It, with the options."""
        return self.client.lock("x", **{"linger": "200ms", **options})

    async def park(self, **options: Any) -> int:
        """Take it and release it; returns its fence."""
        lease = await self.lock(**options).acquire()
        assert await lease.release() is True
        return lease.fence

    async def is_free(self) -> bool:
        """Whether another client could have it at once."""
        return await self.other.inspect("x") is None

    async def advance(self, seconds: float) -> None:
        """Let time pass, and the keeper do what is due."""
        self.store.clock.advance(seconds)
        await self.until(self.opened.keeper.is_quiet)

    async def until(self, condition: Callable[[], object]) -> None:
        for _ in range(2000):
            if condition():
                return
            await asyncio.sleep(0)
        raise AssertionError("it never came to that")

    async def until_free(self) -> None:
        for _ in range(200):
            if await self.is_free():
                return
            await asyncio.sleep(0)
        raise AssertionError("it is not given back")


def story(test: Callable[[Scene], Awaitable[None]]) -> Callable[[], None]:
    @functools.wraps(test)
    def run() -> None:
        async def play() -> None:
            scene = Scene()
            await test(scene)
            await scene.client.close()
            await scene.other.close()

        asyncio.run(play())

    del run.__wrapped__  # pytest would look for a fixture
    return run


@story
async def test_the_next_call_has_it_without_a_request_under_the_next_fence(scene: Scene) -> None:
    first = await scene.park()
    before = len(scene.calls)
    for number in range(1, 5):
        async with scene.lock().hold() as lease:
            assert lease.fence == first + number
    taken = await scene.lock().try_acquire()
    assert taken is not None
    assert taken.fence == first + 5
    assert scene.calls[before:] == []
    await taken.release()
    assert not await scene.is_free()


@story
async def test_it_is_given_back_when_its_time_is_over_counted_from_the_first_release(scene: Scene) -> None:
    await scene.park()
    await scene.advance(0.15)
    lease = await scene.lock().acquire()
    await lease.release()
    assert not await scene.is_free()
    await scene.advance(0.06)
    await scene.until_free()
    assert not scene.opened.parked
    assert scene.opened.keeper.held == 0


@story
async def test_a_release_after_its_time_is_one_to_the_store(scene: Scene) -> None:
    await scene.park()
    lease = await scene.lock().acquire()
    await scene.advance(0.25)
    assert await lease.release() is True
    assert await scene.is_free()


@story
async def test_it_is_not_handed_out_after_its_time_although_the_keeper_is_late(scene: Scene) -> None:
    first = await scene.park()
    last = first + scene.parked.batch.left + 1
    scene.store.clock.advance(0.2)
    lease = await scene.lock().acquire()  # the keeper had no turn
    assert lease.fence > last
    assert scene.calls[-2:] == ["release", "join"]
    await lease.release()


@story
async def test_used_up_fences_send_it_back_to_the_store(scene: Scene) -> None:
    fences = [await scene.park() for _ in range(MOST + 2)]
    assert fences == sorted(set(fences))
    assert scene.calls.count("join") == 2
    assert scene.calls.count("release") == 1


@story
async def test_a_grant_that_had_to_be_waited_for_does_not_linger(scene: Scene) -> None:
    held = await scene.other.lock("x").acquire()
    task = asyncio.create_task(scene.lock().acquire())
    await scene.until(lambda: scene.client._opened and scene.opened.waiting_calls.number)
    await held.release()
    lease = await task
    await lease.release()
    assert await scene.is_free()


@story
async def test_it_does_not_linger_while_another_call_of_the_client_waits_for_it(scene: Scene) -> None:
    lease = await scene.lock().acquire()
    task = asyncio.create_task(scene.lock(ttl=20).acquire())
    await scene.until(lambda: scene.opened.waiting_calls.number)
    await lease.release()
    assert not scene.opened.parked
    await (await task).release()


@pytest.mark.parametrize("options", [{"ttl": 20}, {"reason": "another one"}, {"reentrant": True, "linger": None}])
def test_a_call_of_other_terms_gives_it_back_first(options: dict[str, Any]) -> None:
    @story
    async def run(scene: Scene) -> None:
        first = await scene.park()
        lease = await scene.lock(**options).try_acquire()
        assert lease is not None
        assert lease.fence > first + 1
        assert scene.calls[-2:] == ["release", "try_acquire"]
        await lease.release()

    run()


@story
async def test_giving_it_back_is_part_of_the_time_of_a_call_that_does_not_wait(scene: Scene) -> None:
    """While the store was silent the call took a second for that, and then one of its own."""
    await scene.park()
    scene.store.faults.mute(10)
    began = scene.store.clock.now()
    call = asyncio.create_task(scene.lock(ttl=20).try_acquire())
    while not call.done():
        for _ in range(50):
            await asyncio.sleep(0)
        scene.store.clock.advance(0.05)
    assert isinstance(call.exception(), BackendError)
    assert scene.store.clock.now() - began <= GRACE + 0.1


@story
async def test_a_call_that_already_waits_when_it_is_parked_has_it_given_back(scene: Scene) -> None:
    """It asked the store before the release, in a way that no line knows of."""
    lease = await scene.lock().acquire()
    task = asyncio.create_task(scene.client.lock("x", fair="strict").acquire())
    await scene.until(lambda: scene.opened.waiting_calls.number)
    await lease.release()
    await scene.advance(0.21)
    assert (await asyncio.wait_for(task, 5)).fence > lease.fence
    await task.result().release()


@story
async def test_a_plain_lock_of_the_same_terms_takes_it_and_gives_it_back_in_its_time(scene: Scene) -> None:
    first = await scene.park()
    lease = await scene.client.lock("x").acquire()
    assert lease.fence == first + 1
    await lease.release()
    await scene.advance(0.21)
    await scene.until_free()


@story
async def test_with_less_than_half_of_its_time_it_is_given_back(scene: Scene) -> None:
    first = await scene.park()
    scene.parked.batch.trusted = scene.store.clock.now() + 14.0
    lease = await scene.lock().acquire()
    assert lease.fence > first + MOST
    await lease.release()


@story
async def test_one_that_is_lost_is_not_handed_out_and_no_one_hears_of_it(scene: Scene) -> None:
    first = await scene.park()
    await scene.until(lambda: any(isinstance(event, events.Released) for event in scene.heard))
    scene.heard.clear()
    scene.opened.keeper.lose(scene.parked, Loss(LossReason.TAKEN, "it was lost"))
    lease = await scene.lock().acquire()
    assert lease.fence > first + 1
    assert [type(event) for event in scene.heard] == [events.Acquired]
    await lease.release()


@story
async def test_one_that_an_operator_broke_is_not_handed_out_after_its_renewal(scene: Scene) -> None:
    fence = await scene.park(linger="1s", ttl=2)
    assert await scene.other.break_lock("x", fence=fence + 1, reason="stuck", now=True)
    await scene.advance(0.7)  # a renewal finds it
    await scene.until(lambda: not scene.opened.parked)
    assert not any(isinstance(event, events.Lost) for event in scene.heard)
    lease = await scene.other.lock("x").acquire(0)
    assert lease.fence > fence
    await lease.release()


@story
async def test_a_fence_that_is_too_low_for_the_resource_is_not_handed_out(scene: Scene) -> None:
    first = await scene.park()
    scene.opened.note_fence("leasehold:x", first + 1_000_000)
    lease = await scene.lock().acquire()
    assert lease.fence > first + 1_000_000
    await lease.release()


@story
async def test_each_holder_has_a_max_hold_and_events_of_its_own(scene: Scene) -> None:
    await scene.park()
    lease = await scene.lock(max_hold=5).acquire()
    assert lease.remaining() <= 5.0
    await lease.release()
    again = await scene.lock().acquire()
    assert again.remaining() > 20.0
    await again.release()
    named = [(type(event).__name__, getattr(event, "fence", 0) - lease.fence) for event in scene.heard]
    assert named == [(kind, number) for number in (-1, 0, 1) for kind in ("Acquired", "Released")]


@story
async def test_a_lease_that_lingers_is_over_for_its_holder(scene: Scene) -> None:
    lease = await scene.lock().acquire()
    await lease.release()
    assert lease.remaining() == 0.0
    assert lease.loss is None
    with pytest.raises(LeaseLost, match="it was released"):
        lease.check()
    assert await lease.release() is False
    assert scene.parked.batch.is_parked


@story
async def test_the_program_does_not_hold_it_and_the_store_shows_this_client(scene: Scene) -> None:
    await scene.park()
    assert scene.client.held() == ()
    assert ("x", scene.parked.grant.fence) not in held_names()
    with pytest.raises(AssertionError):
        leasehold.assert_held("x", anywhere=True)
    state = await scene.other.inspect("x")
    assert state is not None
    assert len(state.holdings) == 1


@story
async def test_it_is_renewed_while_it_lingers(scene: Scene) -> None:
    await scene.park(linger="1s", ttl=2)
    await scene.advance(0.7)
    assert scene.calls[-1] == "renew"
    assert not any(isinstance(event, events.Renewed) for event in scene.heard)


@story
async def test_a_dropped_lease_does_not_linger(scene: Scene) -> None:
    lease = await scene.lock().acquire()
    del lease
    gc.collect()
    await scene.advance(1)
    await scene.until(lambda: any(isinstance(event, events.Dropped) for event in scene.heard))
    assert not scene.opened.parked


@pytest.mark.parametrize("release", [False, True])
def test_closing_gives_it_back_without_a_warning_and_never_renews_it_again(release: bool) -> None:
    async def play() -> None:
        scene = Scene()
        await scene.park()
        before = len(scene.heard)
        opened = scene.opened
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            await scene.client.close(release=release)
        assert await scene.is_free()
        assert scene.calls.count("release") == 1
        assert scene.heard[before:] == []
        assert opened.keeper.held == 0
        scene.store.clock.advance(40)
        assert "renew" not in scene.calls
        await scene.other.close()

    asyncio.run(play())


def test_an_event_loop_that_ends_gives_it_back() -> None:
    store = ManualStore(autojump=None)
    client = store.connect_async(ttl=30)

    async def work() -> None:
        await (await client.lock("x", linger="200ms").acquire()).release()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(work())
    assert not store.memory.list("")


@story
async def test_a_lease_released_while_the_client_closes_goes_to_the_store(scene: Scene) -> None:
    lease = await scene.lock().acquire()
    scene.opened.waiting_calls.freeze()
    await lease.release()
    assert await scene.is_free()


@story
async def test_a_store_that_is_away_at_the_end_gets_it_back_later(scene: Scene) -> None:
    await scene.park()
    scene.store.faults.cut()
    await scene.advance(0.21)
    await scene.until(lambda: not scene.opened.parked)
    scene.store.faults.heal()
    for _ in range(20):
        scene.store.clock.advance(0.5)
        await asyncio.sleep(0)
    await scene.until_free()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"renew": False}, "renewed until it is given back"),
        ({"min_hold": 1}, "min_hold keeps a lock"),
        ({"reentrant": True}, "belongs to one thread or task"),
        ({"fair": "strict"}, "before those who wait elsewhere"),
        ({"linger": 1.5}, "at most 1 s"),
        ({"linger": 0.6, "ttl": 1}, "at most 0.5 s"),
        ({"linger": -1}, "linger"),
        ({"linger": math.nan}, "linger"),
    ],
)
def test_it_is_refused_where_it_has_no_meaning(options: dict[str, Any], why: str) -> None:
    with leasehold.connect("memory:") as client, pytest.raises(ConfigurationError, match=why):
        client.lock("x", **{"linger": 0.02, **options})


def test_shared_locks_do_not_linger() -> None:
    with leasehold.connect("memory:") as client:
        for make in (client.rwlock, functools.partial(client.semaphore, permits=2)):
            with pytest.raises(ConfigurationError, match="one holder has alone"):
                make("x", linger=0.02)


def test_a_store_that_keeps_no_fences_free_refuses_it_before_any_io() -> None:
    for url in ("etcd://127.0.0.1:1", "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"):
        client = leasehold.connect(url)
        with pytest.raises(UnsupportedCapability, match=r"has no linger.*use local:"):
            client.lock("x", linger="20ms")
        client.close()
