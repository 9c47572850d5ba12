"""The asyncio faces of `cas_update`, row locks and `insert_once`, over every way that has to be awaited."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiomysql
import aiosqlite
import asyncmy
import asyncpg
import psycopg
import pytest
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from leasehold.errors import ConfigurationError, RowBusy, VersionConflict
from leasehold.sql import (
    cas_update,
    cas_update_async,
    insert_once,
    insert_once_async,
    lock_free_rows_async,
    lock_row,
    lock_row_async,
    lock_rows_async,
    retry_on_conflict,
)
from tests.sql.pairs import fresh_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    Begin = Callable[[], Any]

DRIVERS = {"postgresql": "postgresql+psycopg", "mariadb": "mariadb+asyncmy", "sqlite": "sqlite+aiosqlite"}
KINDS = [
    "postgresql psycopg",
    "postgresql asyncpg",
    "postgresql core",
    "postgresql orm",
    "mysql aiomysql",
    "mysql asyncmy",
    "mysql core",
    "mysql orm",
    "sqlite core",
    "sqlite orm",
    "sqlite aiosqlite",
]
TABLE = "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER NOT NULL, version INTEGER NOT NULL)"


@asynccontextmanager
async def ways(url: str, kind: str) -> AsyncIterator[Begin]:
    """What begins a transaction."""
    parts = make_url(url)
    login = {"host": parts.host, "port": parts.port, "user": parts.username, "db": parts.database}
    if kind in ("core", "orm"):
        engine = create_async_engine(url.replace(parts.drivername, DRIVERS[parts.drivername], 1))
        yield engine.begin if kind == "core" else async_sessionmaker(engine).begin
        await engine.dispose()
    elif kind == "psycopg":
        yield lambda: psycopg.AsyncConnection.connect(url)
    elif kind == "asyncpg":

        @asynccontextmanager
        async def block() -> AsyncIterator[Any]:
            connection = await asyncpg.connect(url)
            try:
                async with connection.transaction():
                    yield connection
            finally:
                await connection.close()

        yield block
    elif kind == "aiosqlite":

        @asynccontextmanager
        async def file() -> AsyncIterator[Any]:
            async with aiosqlite.connect(str(parts.database)) as connection:
                yield connection
                await connection.commit()

        yield file
    else:
        connect: Any = aiomysql.connect if kind == "aiomysql" else asyncmy.connect

        @asynccontextmanager
        async def begin() -> AsyncIterator[Any]:
            connection = await connect(**login)
            try:
                yield connection
                await connection.commit()
            finally:
                connection.close()

        yield begin


@asynccontextmanager
async def entered(begin: Begin) -> AsyncIterator[Any]:
    manager: Any = begin()
    async with manager if hasattr(manager, "__aenter__") else await manager as tx:
        yield tx


async def execute(tx: Any, statement: str) -> None:
    if hasattr(tx, "run_sync"):
        from sqlalchemy import text

        await tx.execute(text(statement))
    elif isinstance(tx, psycopg.AsyncConnection):
        await tx.execute(statement.encode())
    elif isinstance(tx, asyncpg.Connection | aiosqlite.Connection):
        await tx.execute(statement)
    else:
        async with tx.cursor() as cursor:
            await cursor.execute(statement)


@pytest.mark.parametrize("kind", KINDS)
def test_all_of_it_on_an_event_loop(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    database, _, way = kind.partition(" ")
    asyncio.run(story(fresh_url(request, database, tmp_path), way, row_locks=database != "sqlite"))


async def story(url: str, way: str, *, row_locks: bool) -> None:
    async with ways(url, way) as begin:
        async with entered(begin) as tx:
            await execute(tx, TABLE)
            assert await insert_once_async(tx, "t", {"id": 1, "n": 0, "version": 1}, key="id") == (
                True,
                {"id": 1, "n": 0, "version": 1},
            )
            assert not (await insert_once_async(tx, "t", {"id": 1, "n": 5, "version": 1}, key="id")).inserted
            assert await cas_update_async(tx, "t", {"n": 1}, where={"id": 1}, version=1) == 2
            with pytest.raises(VersionConflict) as caught:
                await cas_update_async(tx, "t", {"n": 1}, where={"id": 1}, version=1)
            assert caught.value.current == {"id": 1, "n": 1, "version": 2}
            for blocking in (
                lambda: cas_update(tx, "t", {}, where={"id": 1}, version=1),
                lambda: lock_row(tx, "t", {"id": 1}),
                lambda: insert_once(tx, "t", {"id": 1}, key="id"),
            ):
                with pytest.raises(ConfigurationError, match="async"):
                    blocking()
        async with entered(begin) as one:
            assert await lock_row_async(one, "t", {"id": 1}) == {"id": 1, "n": 1, "version": 2}
            assert await lock_rows_async(one, "t", [{"id": 2}, {"id": 1}], wait=1) == [None, caught.value.current]
            if row_locks:
                async with entered(begin) as two:
                    with pytest.raises(RowBusy):
                        await lock_row_async(two, "t", {"id": 1}, wait=0)
                    assert await lock_free_rows_async(two, "t", {}, order_by="id") == []

        @retry_on_conflict(begin)
        async def increment(tx: Any) -> None:
            row = await lock_row_async(tx, "t", {"id": 1}) if not row_locks else await read(tx)
            assert row is not None
            await cas_update_async(tx, "t", {"n": row["n"] + 1}, where={"id": 1}, version=row["version"])

        await asyncio.gather(*(increment() for _ in range(5)))
        async with entered(begin) as tx:
            assert (await read(tx))["n"] == 6


async def read(tx: Any) -> dict[str, Any]:
    """The row, without a lock: what a conflict carries."""
    try:
        await cas_update_async(tx, "t", {}, where={"id": 1}, version=-1)
    except VersionConflict as conflict:
        return dict(conflict.current or {})
    raise AssertionError
