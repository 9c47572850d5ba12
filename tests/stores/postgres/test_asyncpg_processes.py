"""Processes that lock and write over asyncpg, killed or stopped: another takes over, and a late write is refused."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import asyncpg
import pytest

import leasehold
from leasehold.sql import guard_async
from tests.forms import sized
from tests.stores.support import Worker

if TYPE_CHECKING:
    from collections.abc import Iterator

TTL = 2.0
ROUNDS = sized(2, 20)


class AsyncpgWorker(Worker):
    """The program of this folder."""

    program: ClassVar[Path] = Path(__file__).parent / "asyncpg_worker.py"


@contextmanager
def started(url: str) -> Iterator[AsyncpgWorker]:
    """One worker, which ends with the block."""
    worker = AsyncpgWorker(url, TTL)
    try:
        yield worker
    finally:
        worker.stop()


@pytest.fixture
def account(database: str) -> str:
    """A database with one row to protect."""

    async def make() -> None:
        connection = await asyncpg.connect(database)
        await connection.execute("CREATE TABLE account (n integer)")
        await connection.execute("INSERT INTO account VALUES (0)")
        await connection.close()

    asyncio.run(make())
    return database


async def take_over(url: str, fence: int) -> int:
    """Wait for the lock, write, release; the number in the row."""
    pool = await asyncpg.create_pool(url, min_size=1, max_size=2)
    async with leasehold.connect_async(pool, ttl=TTL) as client:
        async with client.lock("account").hold(timeout=60) as lease:
            assert lease.fence > fence
            assert lease.abandoned
            async with pool.acquire() as connection, connection.transaction():
                await guard_async(connection, lease)
                n = await connection.fetchval("UPDATE account SET n = n + 1 RETURNING n")
    await pool.close()
    return int(n)


def test_killed_holder_is_succeeded_and_its_transaction_is_gone(account: str) -> None:
    for turn in range(ROUNDS):
        with started(account) as worker:
            fence = int(worker.line()[1])
            assert worker.ask("write") == ["written"]
            worker.kill()
            assert asyncio.run(take_over(account, fence)) == 2 * (turn + 1)


def test_stopped_holder_that_wakes_up_late_is_refused_by_the_guard(account: str) -> None:
    for turn in range(ROUNDS):
        with started(account) as worker:
            fence = int(worker.line()[1])
            worker.send(signal.SIGSTOP)
            worker.say("write")
            assert asyncio.run(take_over(account, fence)) == turn + 1
            worker.send(signal.SIGCONT)
            assert worker.line() == ["StaleFence"]
