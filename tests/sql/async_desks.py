"""Every way to a database that has to be awaited, behind one shape for tests; see `desks`."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import aiosqlite
import asyncpg
import psycopg
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.ext.asyncio import create_async_engine as make_engine

from tests.forms import sized
from tests.servers.mariadb import fresh_mariadb
from tests.sql.desks import fresh_schema, sqlalchemy_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest
    from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = ["KINDS", "AsyncDesk", "async_desk", "asyncpg_engine", "mysql_connection"]

ALL_KINDS = [
    "postgresql psycopg",
    "postgresql sqlalchemy core",
    "postgresql sqlalchemy orm",
    "postgresql sqlalchemy scoped",
    "postgresql asyncpg",
    "postgresql asyncpg pool",
    "postgresql asyncpg block",
    "postgresql asyncpg sqlalchemy core",
    "postgresql asyncpg sqlalchemy orm",
    "mysql aiomysql",
    "mysql asyncmy",
    "mysql aiomysql sqlalchemy core",
    "mysql aiomysql sqlalchemy orm",
    "mysql asyncmy sqlalchemy core",
    "mysql asyncmy sqlalchemy scoped",
    "sqlite sqlalchemy core",
    "sqlite sqlalchemy orm",
    "sqlite aiosqlite",
    "sqlite aiosqlite cursor",
]
SOME_KINDS = [
    "postgresql psycopg", "postgresql sqlalchemy scoped", "postgresql asyncpg pool",
    "postgresql asyncpg sqlalchemy orm", "mysql aiomysql", "mysql asyncmy sqlalchemy core",
    "sqlite sqlalchemy orm", "sqlite aiosqlite cursor",
]  # fmt: skip
KINDS = sized(SOME_KINDS, ALL_KINDS)


def asyncpg_engine(url: str, **words: Any) -> AsyncEngine:
    """An engine for `postgresql+asyncpg`; what libpq takes as `options` it takes as settings of the server."""
    parts = make_url(url)
    _, _, path = str(parts.query.get("options", "")).rpartition("=")
    settings = {"server_settings": {"search_path": path}} if path else {}
    driver = parts.set(drivername="postgresql+asyncpg", query={})
    return make_engine(driver, connect_args=settings, **words)


async def mysql_connection(driver: str, url: str, **options: Any) -> Any:
    """A connection of aiomysql or asyncmy, with autocommit off, as both have it by default."""
    parts = make_url(url)
    login = {"host": parts.host, "port": parts.port, "user": parts.username, "db": parts.database}
    return await import_module(driver).connect(**login, **options)


class AsyncDesk:
    """One way to a database; `begin` is a transaction, `run` executes in it."""

    def __init__(self, url: str, kind: str) -> None:
        self.url = url
        self._kind = kind
        self._driver = "asyncmy" if "asyncmy" in kind else "aiomysql"
        self._engine: AsyncEngine | None = None
        self._pool: Any = None

    @property
    def engine(self) -> AsyncEngine:
        if self._engine is None and "asyncpg" in self._kind:
            self._engine = asyncpg_engine(self.url)
        if self._engine is None:
            url = sqlalchemy_url(self.url).replace("sqlite://", "sqlite+aiosqlite://")
            self._engine = make_engine(url.replace("+pymysql", f"+{self._driver}"))
        return self._engine

    def begin(self) -> AbstractAsyncContextManager[Any]:
        if "sqlalchemy" not in self._kind:
            driver = self._kind.split()[1]
            opened: AbstractAsyncContextManager[Any] = getattr(self, f"_{driver}")()
            return opened
        if self._kind.endswith("core"):
            return self.engine.begin()
        if self._kind.endswith("scoped"):
            return self._scoped()
        return async_sessionmaker(self.engine).begin()

    @asynccontextmanager
    async def _psycopg(self) -> AsyncIterator[psycopg.AsyncConnection]:
        async with await psycopg.AsyncConnection.connect(self.url) as connection:
            yield connection

    @asynccontextmanager
    async def _asyncpg(self) -> AsyncIterator[Any]:
        if self._kind.endswith("pool"):
            self._pool = self._pool or await asyncpg.create_pool(self.url, min_size=0, max_size=4)
            async with self._pool.acquire() as connection, connection.transaction():
                yield connection
            return
        connection = await asyncpg.connect(self.url)
        try:
            block = connection.transaction()
            async with block:
                yield block if self._kind.endswith("block") else connection
        finally:
            await connection.close()

    @asynccontextmanager
    async def _aiosqlite(self) -> AsyncIterator[aiosqlite.Connection | aiosqlite.Cursor]:
        async with aiosqlite.connect(self.url.removeprefix("sqlite:///"), timeout=0.1) as connection:
            connection.row_factory = _as_dictionary  # type: ignore[assignment]  # any callable does
            yield await connection.cursor() if self._kind.endswith("cursor") else connection
            await connection.commit()

    @asynccontextmanager
    async def _mysql(self) -> AsyncIterator[Any]:
        connection = await mysql_connection(self._driver, self.url)
        try:
            yield connection
            await connection.commit()
        except BaseException:
            await connection.rollback()  # a server notices a closed connection some time later only
            raise
        finally:
            connection.close()

    _aiomysql = _asyncmy = _mysql

    @asynccontextmanager
    async def _scoped(self) -> AsyncIterator[async_scoped_session[AsyncSession]]:
        sessions = async_scoped_session(async_sessionmaker(self.engine), asyncio.current_task)
        async with sessions.begin():
            yield sessions
        await sessions.remove()

    async def run(self, tx: Any, statement: str) -> list[tuple[Any, ...]]:
        if isinstance(tx, psycopg.AsyncConnection):
            cursor = await tx.execute(statement.encode())
            return await cursor.fetchall() if cursor.description else []
        if isinstance(tx, aiosqlite.Connection | aiosqlite.Cursor):
            done = await tx.execute(statement)
            return [tuple(row.values()) for row in await done.fetchall()]  # type: ignore[attr-defined]  # its factory
        if type(tx).__module__.startswith("asyncpg"):
            connection = getattr(tx, "_connection", tx)
            return [tuple(row) for row in await connection.fetch(statement)]
        if self._kind.endswith(("aiomysql", "asyncmy")):
            async with tx.cursor() as cursor:
                await cursor.execute(statement)
                return [tuple(row) for row in await cursor.fetchall()] if cursor.description else []
        result = await tx.execute(text(statement))
        return [tuple(row) for row in result] if result.returns_rows else []

    async def close(self) -> None:
        if self._engine is not None:
            await self._engine.dispose()
        if self._pool is not None:
            await self._pool.close()


def _as_dictionary(cursor: Any, row: Any) -> dict[str, Any]:
    """Rows of a kind of the user's own, which must not matter."""
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def async_desk(request: pytest.FixtureRequest, folder: Path) -> AsyncDesk:
    """The one of `KINDS` that is the request's parameter, on a new database."""
    if request.param.startswith("postgresql"):
        url = fresh_schema(request.getfixturevalue("postgres"))
    elif request.param.startswith("mysql"):
        url = fresh_mariadb(request.getfixturevalue("mariadb"))
    else:
        url = f"sqlite:///{folder}/data.db"
    return AsyncDesk(url, request.param)
