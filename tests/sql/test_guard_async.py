"""`guard_async` over everything that has to be awaited."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.ext.asyncio import create_async_engine as make_engine

import leasehold
from leasehold.errors import ConfigurationError, RetryTransaction, StaleFence
from leasehold.sql import guard, guard_async
from tests.sql.async_desks import KINDS, AsyncDesk, async_desk
from tests.sql.desks import fresh_schema, sqlalchemy_url
from tests.waiting import two_in_turn_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


@pytest.fixture(params=KINDS)
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncDesk:
    return async_desk(request, tmp_path)


def in_loop(desk: AsyncDesk, story: Callable[[leasehold.AsyncClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with leasehold.connect_async("memory://") as client:
            async with desk.begin() as tx:
                await desk.run(tx, "CREATE TABLE account (n INTEGER)")
                await desk.run(tx, "INSERT INTO account VALUES (0)")
            await story(client)
            await desk.close()

    asyncio.run(main())


async def add_one(desk: AsyncDesk, lease: leasehold.AsyncLease) -> None:
    async with desk.begin() as tx:
        await guard_async(tx, lease)
        ((n,),) = await desk.run(tx, "SELECT n FROM account")
        await desk.run(tx, f"UPDATE account SET n = {n + 1}")


async def total(desk: AsyncDesk) -> int:
    async with desk.begin() as tx:
        ((n,),) = await desk.run(tx, "SELECT n FROM account")
    return int(n)


def test_late_writer_is_refused_and_its_write_is_not_there(desk: AsyncDesk) -> None:
    async def story(client: leasehold.AsyncClient) -> None:
        stale, current = await two_in_turn_async(client.lock("account"))
        await add_one(desk, current)
        await add_one(desk, current)
        with pytest.raises(StaleFence) as caught:
            await add_one(desk, stale)
        assert (caught.value.fence, caught.value.highest) == (stale.fence, current.fence)
        assert await total(desk) == 2

    in_loop(desk, story)


def test_readers_and_writers_have_registers_of_their_own(desk: AsyncDesk) -> None:
    async def story(client: leasehold.AsyncClient) -> None:
        lock = client.rwlock("account")
        writer, _ = await two_in_turn_async(lock.write)
        _, reader = await two_in_turn_async(lock.read)
        for _ in range(2):
            async with desk.begin() as tx:
                await guard_async(tx, reader)
        with pytest.raises(StaleFence):
            await add_one(desk, writer)
        assert await total(desk) == 0

    in_loop(desk, story)


def test_earlier_read_is_refused(desk: AsyncDesk) -> None:
    async def story(client: leasehold.AsyncClient) -> None:
        async with client.lock("account").hold() as lease:
            await add_one(desk, lease)
            try:
                async with desk.begin() as tx:
                    await desk.run(tx, "SELECT n FROM account")
                    await guard_async(tx, lease)
            except ConfigurationError as error:
                assert "before guard" in str(error)
            else:
                assert "postgresql" not in desk.url, "others refuse it only if somebody else has written meanwhile"

    in_loop(desk, story)


def test_blocking_guard_refuses_what_must_be_awaited(desk: AsyncDesk) -> None:
    """So that a forgotten word does not guard nothing."""

    async def story(client: leasehold.AsyncClient) -> None:
        async with client.lock("account").hold() as lease, desk.begin() as tx:
            with pytest.raises(ConfigurationError, match="await guard_async"):
                guard(tx, lease)

    in_loop(desk, story)


def test_async_guard_refuses_what_blocks(tmp_path: Path) -> None:
    import sqlite3

    async def main() -> None:
        async with leasehold.connect_async("memory://") as client, client.lock("account").hold() as lease:
            connection = sqlite3.connect(tmp_path / "data.db")
            with pytest.raises(ConfigurationError, match="not async"):
                await guard_async(connection, lease)
            with pytest.raises(ConfigurationError, match=r"builtins\.object"):
                await guard_async(object(), lease)
            connection.close()

    asyncio.run(main())


def test_guard_that_is_cancelled_while_it_waits_leaves_nothing(postgres: Any) -> None:
    url = fresh_schema(postgres)

    async def main() -> None:
        async with leasehold.connect_async("memory://") as client, client.lock("account").hold() as lease:
            async with await psycopg.AsyncConnection.connect(url) as first:
                await guard_async(first, lease)
            async with await psycopg.AsyncConnection.connect(url) as first:
                await guard_async(first, lease)
                async with await psycopg.AsyncConnection.connect(url) as second:
                    task = asyncio.create_task(guard_async(second, lease))
                    await asyncio.sleep(0.1)
                    assert not task.done()
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                    await second.rollback()
            async with await psycopg.AsyncConnection.connect(url) as third:
                await guard_async(third, lease)

    asyncio.run(main())


def test_conflict_at_a_higher_level_is_told_apart(postgres: Any) -> None:
    url = fresh_schema(postgres)

    async def main() -> None:
        engine = make_engine(sqlalchemy_url(url), isolation_level="REPEATABLE READ")
        async with leasehold.connect_async("memory://") as client, client.lock("account").hold() as lease:
            async with engine.begin() as first:
                await guard_async(first, lease)
            async with engine.connect() as first, engine.connect() as second:
                await second.execute(text("SELECT 1"))
                await guard_async(first, lease)
                await first.commit()
                with pytest.raises(RetryTransaction):
                    await guard_async(second, lease)
        await engine.dispose()

    asyncio.run(main())


def test_connection_is_an_async_connection() -> None:
    """The names that the documentation uses are the ones that are tested here."""
    assert hasattr(AsyncConnection, "run_sync")
    assert hasattr(AsyncSession, "run_sync")
