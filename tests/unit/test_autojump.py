"""The clock of a ManualStore jumps when everybody waits, and never while a thread or task is able to run."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold.testing import ManualStore, standstill
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOOKS = 60  # of at least 5 ms each: several times the standstill that a clock waits for


@pytest.fixture
def store() -> Iterator[ManualStore]:
    store = ManualStore()
    yield store
    store.close()


@pytest.fixture(params=["with the states of threads", "with processor time only"])
def eyes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system tells of threads: Linux more than others."""
    if request.param == "with processor time only":
        monkeypatch.setattr(standstill, "TASKS", "/nowhere")


def timed_out(store: ManualStore, client: leasehold.Client, timeout: float) -> float:
    """Wait for a lock that is held; returns the instant at which that ended."""
    with pytest.raises(leasehold.AcquireTimeout):
        client.lock("x").acquire(timeout=timeout)
    return store.clock.now()


@pytest.mark.usefixtures("eyes")
def test_a_busy_lock_times_out_at_once_and_its_holder_is_renewed_meanwhile(store: ManualStore) -> None:
    client, start = store.connect(), store.clock.now()
    with client.lock("x", ttl=30).hold() as lease:
        assert timed_out(store, client, 90) == start + 90
        lease.check(need=5)


def test_a_busy_lock_times_out_at_once_under_asyncio() -> None:
    async def story() -> float:
        store = ManualStore()
        start = store.clock.now()
        async with store.connect_async() as client, client.lock("x", ttl=10).hold() as lease:
            with pytest.raises(leasehold.AcquireTimeout):
                await client.lock("x").acquire(timeout=40)
            lease.check()
        return store.clock.now() - start

    assert asyncio.run(story()) == 40


def test_a_thread_that_only_waits_for_another_does_not_keep_the_clock(store: ManualStore) -> None:
    client, start = store.connect(), store.clock.now()
    with client.lock("x").hold(), ThreadPoolExecutor() as pool:
        ends = [pool.submit(timed_out, store, client, timeout) for timeout in (20, 5)]
        assert [end.result() for end in ends] == [start + 20, start + 5]


def poll() -> None:
    """Look again and again, as a test does that waits for a condition."""
    for _ in range(LOOKS):
        time.sleep(0.005)


def compute() -> None:
    """Use the processor, and hand the interpreter to others when it asks for that."""
    end = time.monotonic() + LOOKS * 0.005
    while time.monotonic() < end:
        pass


@pytest.mark.parametrize("work", [poll, compute])
def test_a_thread_that_is_at_work_keeps_the_clock_from_jumping(store: ManualStore, work: Callable[[], None]) -> None:
    keep_the_clock(store, work)


def test_a_thread_that_computes_keeps_the_clock_also_where_only_processor_time_is_known(
    store: ManualStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standstill, "TASKS", "/nowhere")
    keep_the_clock(store, compute)


def keep_the_clock(store: ManualStore, work: Callable[[], None]) -> None:
    client, start = store.connect(), store.clock.now()
    with ThreadPoolExecutor() as pool:
        with client.lock("x").hold():
            waiting = pool.submit(client.lock("x").acquire, 5)
            work()
            assert store.clock.now() == start
        waiting.result().release()


def test_a_task_that_is_at_work_keeps_the_clock_from_jumping() -> None:
    async def story() -> None:
        store = ManualStore()
        async with store.connect_async() as client:
            async with client.lock("x").hold():
                waiting = asyncio.create_task(client.lock("x").acquire(timeout=5))
                for _ in range(LOOKS):
                    await asyncio.sleep(0.005)
                assert store.clock.now() == 1000
            await (await waiting).release()

    asyncio.run(story())


def test_leases_that_are_renewed_are_no_reason_to_jump(store: ManualStore) -> None:
    start = store.clock.now()
    with store.connect().lock("x").hold():
        threading.Event().wait(LOOKS * 0.005)  # nothing moves, and no call waits on the clock
        assert store.clock.now() == start


def test_without_autojump_the_clock_moves_only_when_it_is_turned() -> None:
    store = ManualStore(autojump=None)
    client = store.connect()
    with client.lock("x").hold(), ThreadPoolExecutor() as pool:
        waiting = pool.submit(timed_out, store, client, 5)
        eventually(lambda: client.inspect("x") and len(client.inspect("x").waiting) == 1)  # type: ignore[union-attr]
        threading.Event().wait(LOOKS * 0.005)
        assert store.clock.now() == 1000
        store.clock.advance(6)
        assert waiting.result() == 1006
    store.close()


def test_a_clock_that_runs_by_itself_does_not_jump(store: ManualStore) -> None:
    client = store.connect()
    began = time.monotonic()
    with client.lock("x").hold(), store.clock.running():
        timed_out(store, client, 0.3)
    assert time.monotonic() - began >= 0.3


def test_a_store_that_cannot_be_reached_is_given_up_at_once(store: ManualStore) -> None:
    client, start = store.connect(), store.clock.now()
    store.faults.cut()
    with pytest.raises(leasehold.OutcomeUnknown):
        client.lock("x").acquire(timeout=5)
    assert start + 5 <= store.clock.now() < start + 10


def test_a_loss_is_waited_for_at_once(store: ManualStore) -> None:
    lease = store.connect().lock("x", ttl=30, max_hold=120).acquire()
    assert lease.lost.wait(timeout=600)
    assert lease.loss is not None
    assert lease.loss.reason is leasehold.LossReason.MAX_HOLD


def test_a_clock_that_cannot_jump_says_which_threads_run(
    store: ManualStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(standstill, "PATIENCE", 0.05)
    client = store.connect()
    with ThreadPoolExecutor() as pool:
        with client.lock("x").hold():
            waiting = pool.submit(client.lock("x").acquire, 5)
            eventually(lambda: "MainThread" in caplog.text)
        waiting.result().release()
    assert "stands still while other threads run" in caplog.text
