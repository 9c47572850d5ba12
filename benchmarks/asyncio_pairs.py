"""An acquire and its release on asyncio, over each way to PostgreSQL that a program may have already.

    python -m benchmarks.asyncio_pairs --pairs 500 --rounds 7

The ways are measured in turns on one server of its own. Printed are medians of the rounds, in microseconds per pair:
the time that passes, and the processor time of this process, which says more where others use the machine.
A pool of asyncpg resets a session when it is given back, in one more round trip, unless it was made with `reset=`.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
from psycopg_pool import AsyncConnectionPool
from sqlalchemy.ext.asyncio import create_async_engine

import leasehold
from verification.lab.postgres import PostgresServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

__all__ = ["main"]

TTL = 60


@asynccontextmanager
async def _by_url(url: str) -> AsyncIterator[Any]:
    yield url


@asynccontextmanager
async def _psycopg_pool(url: str) -> AsyncIterator[Any]:
    async with AsyncConnectionPool(url, min_size=2, max_size=4, open=False) as pool:
        yield pool


@asynccontextmanager
async def _asyncpg_pool(url: str, **words: Any) -> AsyncIterator[Any]:
    async with asyncpg.create_pool(url, min_size=2, max_size=4, **words) as pool:
        yield pool


@asynccontextmanager
async def _engine(url: str, driver: str) -> AsyncIterator[Any]:
    engine = create_async_engine(url.replace("postgresql:", f"postgresql+{driver}:"), pool_size=4)
    yield engine
    await engine.dispose()


async def _no_reset(_: Any) -> None:
    """Of a program that leaves nothing behind in its sessions."""


WAYS: dict[str, Callable[[str], AbstractAsyncContextManager[Any]]] = {
    "URL (psycopg, connections of its own)": _by_url,
    "psycopg_pool": _psycopg_pool,
    "asyncpg pool": _asyncpg_pool,
    "asyncpg pool, reset= that does nothing": lambda url: _asyncpg_pool(url, reset=_no_reset),
    "asyncpg pool, statement_cache_size=0": lambda url: _asyncpg_pool(url, statement_cache_size=0),
    "SQLAlchemy, psycopg": lambda url: _engine(url, "psycopg"),
    "SQLAlchemy, asyncpg": lambda url: _engine(url, "asyncpg"),
}


async def _round(client: leasehold.AsyncClient, pairs: int) -> tuple[float, float]:
    lock = client.lock("job")
    started, used = time.perf_counter(), time.process_time()
    for _ in range(pairs):
        await (await lock.acquire()).release()
    return (time.perf_counter() - started) / pairs * 1e6, (time.process_time() - used) / pairs * 1e6


async def _measure(url: str, pairs: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    async with AsyncExitStack() as stack:
        clients = {}
        for name, way in WAYS.items():
            target = await stack.enter_async_context(way(url))
            clients[name] = await stack.enter_async_context(leasehold.connect_async(target, ttl=TTL))
            await _round(clients[name], 50)  # makes the tables, and has the statements prepared
        for _ in range(rounds):
            for name, client in clients.items():
                figures[name].append(await _round(client, pairs))
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="a pair on asyncio, over each driver")
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    with PostgresServer(settings={"synchronous_commit": "off"}) as server:
        assert isinstance(server, PostgresServer)
        figures = asyncio.run(_measure(server.url(), arguments.pairs, arguments.rounds))
    for name, rounds in figures.items():
        passed, used = (statistics.median(column) for column in zip(*rounds, strict=True))
        least = min(each for each, _ in rounds)
        print(f"{name:42} {passed:7.0f} us   least {least:7.0f} us   processor {used:7.0f} us")


if __name__ == "__main__":
    main()
