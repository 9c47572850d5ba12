"""P12: a pair must not cost more when many other names are held, nor a grant when many wait for it."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import leasehold
from benchmarks.harness import Candidate, Role, Sample, measure, timed
from benchmarks.postgres_locks import why_no_server
from benchmarks.redis_server import RedisServer, why_missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.harness import Settings, Table

__all__ = ["queue_of_tasks", "run", "stores"]


def run(settings: Settings) -> Iterator[Table]:
    """Held names, then waiters."""
    with stores(settings) as urls:
        sizes = settings.pick((1, 10, 100, 1_000, 10_000), (1, 10))
        for store, url_of in urls.items():
            candidates = [_held(settings, url_of(f"held-{size}"), size) for size in sizes]
            yield measure(f"{store}: pair beside held names", candidates, settings)
        sizes = settings.pick((1, 10, 100, 1_000), (1, 10))
        for store, url_of in urls.items():
            candidates = [queue_of_tasks(settings, url_of, size + 1, f"{size:,} waiting") for size in sizes]
            title = f"{store}: grants with a queue of asyncio tasks"
            yield measure(title, candidates, settings, unit="grants a second", higher_is_better=True, by="median")


@contextmanager
def stores(settings: Settings) -> Iterator[dict[str, Callable[[str], str]]]:
    """For each store, how to name a fresh one of it; Redis and PostgreSQL only where there is a server."""
    server = None if why_missing() else RedisServer()
    database = _database()
    urls: dict[str, Callable[[str], str]] = {
        "memory": lambda _: "memory://",
        "SQLite": lambda name: f"sqlite:///{settings.directory / name}",
    }
    if server is not None:
        urls["Redis"] = lambda name: f"{server.url}?prefix={name}:"
    if database is not None:
        urls["PostgreSQL"] = lambda name: f"{database.url()}?schema={name.replace('-', '_')}"
    try:
        yield urls
    finally:
        if database is not None:
            database.remove()
        if server is not None:
            server.close()


def _database() -> Any:
    if why_no_server():
        return None
    from verification.lab.postgres import PostgresServer  # noqa: PLC0415 - it needs psycopg

    server = PostgresServer()
    server.start()
    return server


def _held(settings: Settings, url: str, size: int) -> Candidate:
    client = leasehold.connect(url)
    leases = [client.lock(f"held:{number}").acquire() for number in range(size)]
    lock = client.lock("bench")

    def pairs(count: int) -> None:
        for _ in range(count):
            lock.acquire().release()

    def close() -> None:
        for lease in leases:
            lease.release()
        client.close()

    return timed(f"{size:,} held", Role.OURS, pairs, settings, close=close)


def queue_of_tasks(settings: Settings, url_of: Callable[[str], str], size: int, name: str) -> Candidate:
    """Tasks of one process that take the same lock again and again."""
    seconds: float = settings.pick(1.0, 0.05)
    url = url_of(f"queue-{size}-{time.monotonic_ns()}")

    async def crowd() -> Sample:
        async with leasehold.connect_async(url) as client:
            lock = client.lock("bench")
            counts = [0] * size
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
            tasks = [asyncio.create_task(contend(number)) for number in range(size)]
            while len(getattr(await client.inspect("bench"), "waiting", ())) < size:  # noqa: ASYNC110 - a store tells nobody
                await asyncio.sleep(0.01)
            end = time.monotonic() + seconds
            await first.release()
            await asyncio.gather(*tasks)
        return Sample(sum(counts) / seconds, {"least/most": min(counts) / max(*counts, 1)})

    return Candidate(name, Role.OURS, lambda: asyncio.run(crowd()))
