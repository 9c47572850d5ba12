"""P2: Redis and asyncio. One task alone, and 64 tasks on 64 names: one connection against a pool of them."""

from __future__ import annotations

import asyncio
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

import leasehold
from benchmarks.harness import Candidate, Role, Sample, measure
from benchmarks.redis_server import RedisServer, ScriptPipeline, why_missing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from benchmarks.harness import Settings, Table

    Pair = Callable[[], Awaitable[object]]

__all__ = ["run"]

OURS, THEIRS = "leasehold", "redis.asyncio Lock"
TTL = 30
TARGET = 6


def run(settings: Settings) -> Iterator[Table]:
    """One task, then many."""
    if missing := why_missing():
        yield measure("Redis, asyncio", [Candidate(OURS, Role.OURS, None, missing)], settings)
        return
    server = RedisServer()
    try:
        for size in (1, settings.pick(64, 4)):
            yield _table(settings, server, size)
    finally:
        server.close()


def _table(settings: Settings, server: RedisServer, size: int) -> Table:
    candidates = [
        _floor(settings, server, size),
        Candidate(OURS, Role.OURS, lambda: asyncio.run(_ours(settings, server, size))),
        Candidate(THEIRS, Role.PEER, lambda: asyncio.run(_theirs(settings, server, size))),
    ]
    title = "Redis, asyncio, one task" if size == 1 else f"Redis, asyncio, {size} tasks on {size} names"
    table = measure(title, candidates, settings, unit="pairs a second", higher_is_better=True, by="median")
    ours, theirs = table.row(OURS).median, table.row(THEIRS).median
    if ours and theirs:
        table.notes.append(f"{ours / theirs:.1f} x {THEIRS}")
        table.targets += [f"at least {TARGET} x {THEIRS}"] if size > 1 else []
    return table


def _floor(settings: Settings, server: RedisServer, size: int) -> Candidate:
    """No tasks at all: all acquires in one write, then all releases in one write."""
    pipeline = ScriptPipeline(server.port, size)
    seconds: float = settings.pick(0.5, 0.02)

    def sample() -> Sample:
        rounds, started = 0, time.perf_counter()
        while (took := time.perf_counter() - started) < seconds:
            pipeline.pairs(1)
            rounds += 1
        return Sample(rounds * size / took, {"connections": 1})

    return Candidate("two writes of bare scripts", Role.FLOOR, sample, close=pipeline.close)


async def _ours(settings: Settings, server: RedisServer, size: int) -> Sample:
    async with leasehold.connect_async(server.url, ttl=TTL) as client:

        def pair(number: int) -> Pair:
            lock = client.lock(f"task-{number}")

            async def take_and_give() -> None:
                await (await lock.acquire()).release()

            return take_and_give

        return await _rate(settings, server, [pair(number) for number in range(size)])


async def _theirs(settings: Settings, server: RedisServer, size: int) -> Sample:
    client: Any = import_module("redis.asyncio").Redis(port=server.port)

    def pair(number: int) -> Pair:
        lock = client.lock(f"their-task-{number}", timeout=TTL)

        async def take_and_give() -> None:
            await lock.acquire()
            await lock.release()

        return take_and_give

    try:
        return await _rate(settings, server, [pair(number) for number in range(size)])
    finally:
        await client.aclose()


async def _rate(settings: Settings, server: RedisServer, pairs: list[Pair]) -> Sample:
    """Every task takes and gives its own name until the time is over."""
    before = len(server.clients())
    await asyncio.gather(*(pair() for pair in pairs))  # connections are opened
    connections = len(server.clients()) - before
    seconds: float = settings.pick(0.5, 0.02)
    started = time.perf_counter()

    async def repeat(pair: Pair) -> int:
        count = 0
        while time.perf_counter() - started < seconds:
            await pair()
            count += 1
        return count

    counts = await asyncio.gather(*(repeat(pair) for pair in pairs))
    return Sample(sum(counts) / (time.perf_counter() - started), {"connections": connections})
