"""100,000 cycles and 10,000 cancelled acquires leave threads, tasks, descriptors and records where they were."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from pathlib import Path

import leasehold
from leasehold._backends.memory import MemoryStore
from leasehold.errors import AcquireTimeout


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0


def test_a_hundred_thousand_blocking_cycles_leave_nothing_behind() -> None:
    store = MemoryStore()
    threads, files = threading.active_count(), descriptors()
    with leasehold.connect(store) as client:
        lock = client.lock("x")
        lock.acquire().release()
        gc.collect()
        objects = len(gc.get_objects())
        for _ in range(100_000):
            lock.acquire().release()
        gc.collect()
        assert len(gc.get_objects()) - objects < 1_000
        assert threading.active_count() <= threads + 2  # the keeper, and a renewal that may just be ending
    assert store.size == 0
    assert threading.active_count() <= threads
    assert descriptors() <= files  # a server of an earlier test may just have ended


def test_ten_thousand_timeouts_leave_nothing_behind() -> None:
    store = MemoryStore()
    with leasehold.connect(store) as client:
        with client.lock("x").hold():
            for _ in range(10_000):
                try:
                    client.lock("x", ttl=0.1).acquire(timeout=1e-6)
                except AcquireTimeout:
                    continue
                raise AssertionError("it is held")
            state = client.inspect("x")
            assert state is not None
            assert state.waiting == ()


def test_ten_thousand_cancelled_acquires_leave_nothing_behind() -> None:
    async def main() -> None:
        store = MemoryStore()
        files = descriptors()
        async with leasehold.connect_async(store) as client:
            async with client.lock("x").hold():
                lock = client.lock("x", ttl=0.1)
                for _ in range(100):
                    tasks = [asyncio.create_task(lock.acquire()) for _ in range(100)]
                    await asyncio.sleep(0)
                    for task in tasks:
                        task.cancel()
                    results = await asyncio.gather(*tasks, return_exceptions=True)
                    assert all(isinstance(result, asyncio.CancelledError) for result in results)
                state = await client.inspect("x")
                assert state is not None
                assert state.waiting == ()
                await asyncio.sleep(0.15)  # the tombstones of the withdrawn claims last one ttl
        assert store.size == 0
        assert descriptors() <= files  # a server of an earlier test may just have ended
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_many_names_leave_no_record_behind() -> None:
    store = MemoryStore()
    with leasehold.connect(store) as client:
        for number in range(20_000):
            client.lock(f"name {number}").acquire().release()
    assert store.size == 0


def test_a_thousand_leases_are_kept_by_one_worker() -> None:
    threads = threading.active_count()
    ttl = 6  # a thread may wait a second and more for a core, beside everything else that is tested
    with leasehold.connect("memory://", ttl=ttl) as client:
        leases = [client.lock(f"n{number}").acquire() for number in range(1_000)]
        assert threading.active_count() <= threads + 2
        time.sleep(ttl + 0.5)
        for lease in leases:
            lease.check()
        for lease in leases:
            assert lease.release()
