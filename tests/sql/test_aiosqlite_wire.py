"""What is particular to aiosqlite under `leasehold.sql`: a connection on a thread of its own, and its transactions."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, Any

import aiosqlite
import pytest

import leasehold
from leasehold.errors import ConfigurationError, RetryTransaction, StaleFence
from leasehold.sql import (
    IdempotencyKeys,
    fenced_update_async,
    guard,
    guard_async,
    is_retryable,
    transaction_lock_async,
)
from tests.waiting import two_in_turn_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


def with_file(path: Path, story: Callable[[leasehold.AsyncClient, Any], Awaitable[None]]) -> None:
    """`story` gets a client, and what connects to the one file."""

    async def main() -> None:
        def connect(**words: Any) -> Any:
            return aiosqlite.connect(path / "data.db", timeout=0.05, **words)

        async with connect() as connection:
            await connection.execute("PRAGMA journal_mode = WAL")
            await connection.execute("CREATE TABLE account (n INTEGER, fence INTEGER NOT NULL)")
            await connection.execute("INSERT INTO account VALUES (0, 0)")
            await connection.commit()
        async with leasehold.connect_async("memory://") as client:
            await story(client, connect)

    asyncio.run(main())


def test_connection_that_commits_by_itself_is_refused(tmp_path: Path) -> None:
    async def story(client: leasehold.AsyncClient, connect: Any) -> None:
        async with client.lock("account").hold() as lease, connect(isolation_level=None) as connection:
            with pytest.raises(ConfigurationError, match="outside a transaction"):
                await guard_async(connection, lease)
            await connection.execute("BEGIN IMMEDIATE")
            await guard_async(connection, lease)
            await connection.commit()
            with pytest.raises(ConfigurationError, match="is async"):
                guard(connection, lease)
            with pytest.raises(ConfigurationError, match="PostgreSQL"):
                await transaction_lock_async(connection, "account")

    with_file(tmp_path, story)


def test_writer_in_the_way_is_no_refusal(tmp_path: Path) -> None:
    """The file is busy: run the transaction again. What the guard had opened is closed."""

    async def story(client: leasehold.AsyncClient, connect: Any) -> None:
        async with client.lock("account").hold() as lease, connect() as one, connect() as two:
            await guard_async(one, lease)
            with pytest.raises(RetryTransaction) as caught:
                await guard_async(two, lease)
            assert is_retryable(caught.value)
            assert not two.in_transaction
            await one.commit()
            await guard_async(two, lease)
            await two.commit()

    with_file(tmp_path, story)


def test_read_before_the_guard_that_is_outdated_is_told(tmp_path: Path) -> None:
    async def story(client: leasehold.AsyncClient, connect: Any) -> None:
        async with client.lock("account").hold() as lease, connect() as one, connect() as two:
            await one.execute("BEGIN")
            await (await one.execute("SELECT n FROM account")).fetchall()
            await guard_async(two, lease)
            await two.execute("UPDATE account SET n = n + 1")
            await two.commit()
            with pytest.raises(RetryTransaction, match="had read before"):
                await guard_async(one, lease)
            await one.rollback()

    with_file(tmp_path, story)


def test_row_with_a_fence_of_its_own(tmp_path: Path) -> None:
    async def story(client: leasehold.AsyncClient, connect: Any) -> None:
        stale, current = await two_in_turn_async(client.lock("account"))
        async with connect() as connection:
            cursor = await connection.cursor()
            assert await fenced_update_async(cursor, current, "account", {"n": 5}, where={"n": 0})
            with pytest.raises(StaleFence):
                await fenced_update_async(connection, stale, "account", {"n": 6}, where={"n": 5})
            assert not await fenced_update_async(connection, current, "account", {"n": 6}, where={"n": 7})
            await connection.commit()

    with_file(tmp_path, story)


def test_attempt_that_is_cancelled_while_it_waits_for_the_file_leaves_nothing(tmp_path: Path) -> None:
    """The statement goes on in the thread of the connection; what it has opened is rolled back after it."""
    keys = IdempotencyKeys("charges", wait=20)

    async def story(_: leasehold.AsyncClient, connect: Any) -> None:
        async with connect() as one, connect() as two:
            await one.execute("BEGIN IMMEDIATE")

            async def attempt() -> None:
                async with keys.attempt_async(two, "k", fingerprint="x"):
                    pass

            begun: list[str] = []
            await two.set_trace_callback(begun.append)
            task = asyncio.create_task(attempt())
            while not any("BEGIN" in statement for statement in begun):
                await asyncio.sleep(0.01)
            assert not task.done()
            task.cancel()
            await asyncio.sleep(0)
            await one.rollback()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await (await two.execute("PRAGMA busy_timeout")).fetchone())[0] == 50, "as it was"
            assert not two.in_transaction
            async with keys.attempt_async(one, "k", fingerprint="x") as again:
                await again.complete(1)
            await one.commit()

    with_file(tmp_path, story)


def test_connection_that_is_closed_is_an_error_of_the_driver(tmp_path: Path) -> None:
    async def story(client: leasehold.AsyncClient, connect: Any) -> None:
        async with client.lock("account").hold() as lease:
            async with connect() as connection:
                pass
            with pytest.raises((ValueError, sqlite3.ProgrammingError)):
                await guard_async(connection, lease)

    with_file(tmp_path, story)
