"""P12 on etcd: a pair beside many held names, a pair after many others of the same name, and grants while many wait."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import leasehold
from benchmarks.etcd_locks import OURS, start, why_no_server
from benchmarks.harness import Candidate, Role, Sample, measure, timed
from leasehold.backends.etcd.queue import MOST_IN_STORE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Settings, Table

__all__ = ["run"]


def run(settings: Settings) -> Iterator[Table]:
    """Held names, used names, then waiters."""
    if missing := why_no_server():
        yield measure("etcd: growth", [Candidate(OURS, Role.OURS, None, missing)], settings)
        return
    server = start()
    try:
        sizes = settings.pick((1, 10, 100, 1_000), (1, 10))
        yield measure("etcd: pair beside held names", [_held(settings, server.url, size) for size in sizes], settings)
        uses = settings.pick((0, 1_000, 10_000), (0, 10))
        title = "etcd: pair on a name that was used before"
        yield measure(title, [_used(settings, server.url, size) for size in uses], settings)
        candidates = [_crowd(settings, server.url, size) for size in sizes]
        title = "etcd: grants with a queue of asyncio tasks"
        yield measure(title, candidates, settings, unit="grants a second", higher_is_better=True, by="median")
    finally:
        server.remove()


def _pairs(settings: Settings, client: leasehold.Client, title: str, name: str) -> Candidate:
    lock = client.lock(name)

    def pairs(count: int) -> None:
        for _ in range(count):
            lock.acquire().release()

    return timed(title, Role.OURS, pairs, settings, close=client.close)


def _held(settings: Settings, url: str, size: int) -> Candidate:
    client = leasehold.connect(url, ttl=120, namespace=f"held {size}")
    leases = [client.lock(f"held:{number}").acquire() for number in range(size)]
    candidate = _pairs(settings, client, f"{size:,} held", "bench")

    def close() -> None:
        for lease in leases:
            lease.release()
        client.close()

    candidate.close = close
    return candidate


def _used(settings: Settings, url: str, uses: int) -> Candidate:
    """By a client that came and went."""
    name = f"used {uses}"
    with leasehold.connect(url) as before:
        lock = before.lock(name)
        for _ in range(uses):
            lock.acquire().release()
    return _pairs(settings, leasehold.connect(url), f"{uses:,} uses before", name)


def _crowd(settings: Settings, url: str, size: int) -> Candidate:
    """Tasks of one client that take the same lock again and again."""
    seconds: float = settings.pick(1.5, 0.05)

    async def crowd() -> Sample:
        async with leasehold.connect_async(url, ttl=120, namespace=f"crowd {time.monotonic_ns()}") as client:
            lock = client.lock("bench")
            counts = [0] * (size + 1)
            end = 0.0

            async def contend(number: int) -> None:
                while True:
                    lease = await lock.acquire()
                    is_over = time.monotonic() >= end
                    await lease.release()
                    if is_over:
                        return
                    counts[number] += 1

            first = await lock.acquire()
            tasks = [asyncio.create_task(contend(number)) for number in range(size + 1)]
            there = min(size + 1, MOST_IN_STORE - 1)  # the others stand in line inside the client
            while len(getattr(await client.inspect("bench"), "waiting", ())) < there:  # noqa: ASYNC110 - a store tells nobody
                await asyncio.sleep(0.05)
            end = time.monotonic() + seconds
            await first.release()
            await asyncio.gather(*tasks)
        return Sample(sum(counts) / seconds, {"least/most": min(counts) / max(*counts, 1)})

    return Candidate(f"{size:,} waiting", Role.OURS, lambda: asyncio.run(crowd()))
