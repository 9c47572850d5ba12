"""A mutex that several threads or tasks share: each releases what it acquired itself, and gets its own loss."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from leasehold.errors import BackendRejected, LeaseLost
from leasehold.testing import ManualStore
from leasehold.values import LossReason

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from leasehold import Client


class Actor:
    """A thread of its own that does one thing after the other."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)

    def __call__(self, action: Callable[[], Any]) -> Any:
        return self._pool.submit(action).result(60)

    def close(self) -> None:
        self._pool.shutdown()


@pytest.fixture
def actors() -> Iterator[tuple[Actor, Actor]]:
    pair = (Actor(), Actor())
    yield pair
    for actor in pair:
        actor.close()


def is_free(client: Client) -> bool:
    lease = client.lock("x").try_acquire()
    return lease is not None and lease.release()


def on_a_loop(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 60))


def test_a_late_release_of_one_thread_does_not_free_what_another_holds(actors: tuple[Actor, Actor]) -> None:
    first, second = actors
    store = ManualStore()
    with store.connect() as client:
        mutex = client.lock("x", ttl=10, renew=False).as_mutex()
        assert first(mutex.acquire)
        store.clock.advance(11)
        assert second(mutex.acquire)
        with pytest.raises(LeaseLost) as lost:
            first(mutex.release)
        assert lost.value.reason is LossReason.EXPIRED
        assert client.lock("x").try_acquire() is None, "the second thread's lease is gone"
        assert mutex.locked()
        second(mutex.release)
        assert not mutex.locked()


def test_a_late_release_of_one_task_does_not_free_what_another_holds() -> None:
    async def main() -> None:
        store = ManualStore()
        async with store.connect_async() as client:
            mutex = client.lock("x", ttl=10, renew=False).as_mutex()
            is_lost, is_held, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

            async def first() -> LossReason | None:
                await mutex.acquire()
                await is_lost.wait()
                await is_held.wait()
                with pytest.raises(LeaseLost) as lost:
                    await mutex.release()
                return lost.value.reason

            async def second() -> None:
                await is_lost.wait()
                async with mutex:
                    is_held.set()
                    await may_end.wait()

            one = asyncio.create_task(first())
            while not mutex.locked():
                await asyncio.sleep(0)
            two = asyncio.create_task(second())
            store.clock.advance(11)
            is_lost.set()
            assert await one is LossReason.EXPIRED
            assert mutex.locked()
            assert await client.lock("x").try_acquire() is None, "the second task's lease is gone"
            may_end.set()
            await two
            assert not mutex.locked()

    on_a_loop(main())


def test_a_second_release_does_not_free_what_another_thread_holds(actors: tuple[Actor, Actor]) -> None:
    first, second = actors
    with ManualStore().connect() as client:
        mutex = client.lock("x").as_mutex()
        first(mutex.acquire)
        first(mutex.release)
        second(mutex.acquire)
        with pytest.raises(RuntimeError, match="another thread or task"):
            first(mutex.release)
        assert mutex.locked()
        second(mutex.release)
        with pytest.raises(RuntimeError, match="release unlocked lock"):
            first(mutex.release)


def test_a_task_that_did_not_acquire_it_cannot_release_it() -> None:
    async def main() -> None:
        async with ManualStore().connect_async() as client:
            mutex = client.lock("x").as_mutex()
            await mutex.acquire()
            with pytest.raises(RuntimeError, match="another thread or task"):
                await asyncio.create_task(mutex.release())
            assert mutex.locked()
            await mutex.release()

    on_a_loop(main())


def test_after_a_loss_the_mutex_can_be_used_again() -> None:
    store = ManualStore()
    with store.connect() as client:
        mutex = client.lock("x", ttl=10, renew=False).as_mutex()
        mutex.acquire()
        store.clock.advance(11)
        with pytest.raises(LeaseLost) as lost:
            mutex.release()
        assert (lost.value.completed, lost.value.reason) == (True, LossReason.EXPIRED)
        mutex.acquire()
        mutex.release()
        assert is_free(client), "the new lease was not given back"
        with pytest.raises(RuntimeError, match="release unlocked lock"):
            mutex.release()


def test_a_re_entrant_mutex_is_released_as_often_as_it_was_acquired(actors: tuple[Actor, Actor]) -> None:
    first, second = actors
    with ManualStore().connect() as client:
        mutex = client.lock("x", reentrant=True).as_mutex()
        assert first(mutex.acquire)
        assert first(mutex.acquire)
        assert not second(lambda: mutex.acquire(blocking=False))
        assert not second(lambda: mutex.acquire(timeout=0))
        first(mutex.release)
        assert not second(lambda: mutex.acquire(blocking=False))
        first(mutex.release)
        assert second(lambda: mutex.acquire(blocking=False))
        second(mutex.release)


def test_a_release_reports_that_the_store_no_longer_had_the_grant() -> None:
    store = ManualStore()
    with store.connect() as client:
        mutex = client.lock("x").as_mutex()
        mutex.acquire()
        state = client.inspect("x")
        assert state is not None
        client.break_lock("x", fence=state.holdings[0].fence, reason="stuck", now=True)
        with pytest.raises(LeaseLost):
            mutex.release()
        assert not mutex.locked()


def test_a_release_that_failed_can_be_tried_again() -> None:
    store = ManualStore()
    with store.connect() as client:
        mutex = client.lock("x").as_mutex()
        mutex.acquire()
        store.faults.reject_next("release")
        with pytest.raises(BackendRejected):
            mutex.release()
        mutex.release()
        assert is_free(client)


def test_an_error_of_the_block_is_not_hidden_by_the_loss() -> None:
    store = ManualStore()
    with store.connect() as client, pytest.raises(KeyError) as failed, client.lock("x", renew=False).as_mutex():
        store.clock.advance(31)
        raise KeyError("x")
    assert any("lost before release" in note for note in failed.value.__notes__)


def test_many_threads_that_share_a_mutex_are_alone_in_their_blocks() -> None:
    counter = 0
    with ManualStore().connect() as client:
        mutex = client.lock("x").as_mutex()

        def count() -> None:
            nonlocal counter
            for _ in range(20):
                with mutex:
                    seen = counter
                    counter = seen + 1

        threads = [threading.Thread(target=count) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert counter == 160
