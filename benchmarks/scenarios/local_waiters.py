"""P13: hundreds of threads or tasks of one process that want the same name."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import leasehold
from benchmarks.harness import Candidate, Role, Sample, measure
from benchmarks.locks import make, why_missing
from benchmarks.redis_locks import MOST_CONNECTIONS, REDIS_PY, TTL, Connections
from benchmarks.redis_locks import make as make_redis
from benchmarks.redis_locks import why_missing as why_no_redis_lock
from benchmarks.scenarios.growth import queue_of_tasks, stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from benchmarks.harness import Settings, Table

__all__ = ["run"]

REDIS_ASYNCIO = "redis.asyncio Lock"


class _Lease:
    """The two verbs over a blocking lock of ours, for one thread."""

    def __init__(self, lock: leasehold.Lock) -> None:
        self._lock = lock
        self._lease: leasehold.Lease | None = None

    def take(self) -> None:
        self._lease = self._lock.acquire()

    def give(self) -> None:
        if self._lease is not None:
            self._lease.release()


class _Plain:
    """The two verbs over a `threading.Lock`."""

    def __init__(self, lock: threading.Lock) -> None:
        self.take: Callable[[], object] = lock.acquire
        self.give = lock.release


def run(settings: Settings) -> Iterator[Table]:
    """Threads, then tasks."""
    threads, tasks = settings.pick((100, 500), (4, 8))
    plain = threading.Lock()
    rate: dict[str, Any] = {"unit": "grants a second", "higher_is_better": True, "by": "median"}
    with stores(settings) as urls:
        candidates = [
            _crowd(settings, threads, "threading.Lock", Role.FLOOR, lambda: _Plain(plain)),
            *(_ours(settings, threads, store, url_of("threads")) for store, url_of in urls.items()),
            _filelock(settings, threads),
            _redis_py(settings, threads, urls),
        ]
        table = measure(f"{threads} threads on one name", candidates, settings, **rate)
        _compare(table, REDIS_PY)
        yield table
        candidates = [
            _asyncio_lock(settings, tasks),
            *(queue_of_tasks(settings, url_of, tasks, f"leasehold, {store}") for store, url_of in urls.items()),
            _redis_asyncio(settings, tasks, urls),
        ]
        table = measure(f"{tasks} asyncio tasks on one name", candidates, settings, **rate)
        _compare(table, REDIS_ASYNCIO)
        yield table


def _compare(table: Table, peer: str) -> None:
    """Say how many times the peer's grants ours on Redis are."""
    ours = next((row.median for row in table.rows if row.name == "leasehold, Redis"), None)
    theirs = table.row(peer).median
    if ours and theirs:
        table.notes.append(f"leasehold on Redis: {ours / theirs:.2f} x {peer}")
        table.targets.append(f"at least 20 x {peer}")


def _ours(settings: Settings, size: int, store: str, url: str) -> Candidate:
    client = leasehold.connect(url)
    lock = client.lock("bench")
    return _crowd(settings, size, f"leasehold, {store}", Role.OURS, lambda: _Lease(lock), close=client.close)


def _redis_py(settings: Settings, size: int, urls: Mapping[str, Callable[[str], str]]) -> Candidate:
    missing = why_no_redis_lock(REDIS_PY) if "Redis" in urls else "no redis-server"
    if missing:
        return Candidate(REDIS_PY, Role.PEER, None, missing)
    connections = Connections(_port(urls))

    def make_one() -> Any:
        return make_redis(REDIS_PY, connections, "redis-py")

    return _crowd(settings, size, REDIS_PY, Role.PEER, make_one, close=connections.close)


def _redis_asyncio(settings: Settings, size: int, urls: Mapping[str, Callable[[str], str]]) -> Candidate:
    missing = why_no_redis_lock(REDIS_PY) if "Redis" in urls else "no redis-server"
    if missing:
        return Candidate(REDIS_ASYNCIO, Role.PEER, None, missing)
    seconds: float = settings.pick(1.0, 0.05)

    async def crowd() -> Sample:
        client: Any = import_module("redis.asyncio").Redis(port=_port(urls), max_connections=MOST_CONNECTIONS)
        counts = [0] * size
        end = math.inf

        async def contend(number: int) -> None:
            lock = client.lock("redis.asyncio", timeout=TTL)
            while time.monotonic() < end:
                await lock.acquire()
                if time.monotonic() < end:
                    counts[number] += 1
                await lock.release()

        first = client.lock("redis.asyncio", timeout=TTL)
        await first.acquire()
        tasks = [asyncio.create_task(contend(number)) for number in range(size)]
        await asyncio.sleep(settings.pick(1.0, 0.1))  # all are connected and have asked once
        end = time.monotonic() + seconds
        await first.release()
        await asyncio.gather(*tasks)
        await client.aclose()
        return Sample(sum(counts) / seconds, {"least/most": min(counts) / max(*counts, 1)})

    return Candidate(REDIS_ASYNCIO, Role.PEER, lambda: asyncio.run(crowd()))


def _port(urls: Mapping[str, Callable[[str], str]]) -> int:
    return urlsplit(urls["Redis"]("x")).port or 0


def _filelock(settings: Settings, size: int) -> Candidate:
    if missing := why_missing("filelock"):
        return Candidate("filelock", Role.PEER, None, missing)
    path = settings.directory / "threads.lock"
    return _crowd(settings, size, "filelock", Role.PEER, lambda: make("filelock", path))


def _crowd(settings: Settings, size: int, name: str, role: Role, make_one: Callable[[], Any], **more: Any) -> Candidate:
    """Threads that take and give until the time is over.

    All of them wait before it begins. Otherwise each would run alone for as long as the interpreter lets a thread run,
    and the figure would be that of an uncontended lock.
    """
    seconds: float = settings.pick(1.0, 0.05)

    def sample() -> Sample:
        counts = [0] * size
        begun = threading.Semaphore(0)
        end = math.inf

        def contend(number: int) -> None:
            lock = make_one()
            begun.release()
            while True:
                lock.take()
                is_over = time.monotonic() >= end
                lock.give()
                if is_over:
                    return
                counts[number] += 1

        first = make_one()
        first.take()
        threads = [threading.Thread(target=contend, args=(number,)) for number in range(size)]
        for thread in threads:
            thread.start()
            begun.acquire()
        time.sleep(settings.pick(0.3, 0.02))  # the last ones are on their way from `begun` to `take`
        end = time.monotonic() + seconds
        first.give()
        for thread in threads:
            thread.join()
        return Sample(sum(counts) / seconds, {"least/most": min(counts) / max(*counts, 1)})

    return Candidate(name, role, sample, **more)


def _asyncio_lock(settings: Settings, size: int) -> Candidate:
    seconds: float = settings.pick(1.0, 0.05)

    async def crowd() -> Sample:
        lock = asyncio.Lock()
        counts = [0] * size
        end = time.monotonic() + seconds

        async def contend(number: int) -> None:
            while time.monotonic() < end:
                async with lock:
                    counts[number] += 1
                    await asyncio.sleep(0)  # it never gives way by itself otherwise

        await asyncio.gather(*(contend(number) for number in range(size)))
        return Sample(sum(counts) / seconds, {"least/most": min(counts) / max(*counts, 1)})

    return Candidate("asyncio.Lock", Role.FLOOR, lambda: asyncio.run(crowd()))
