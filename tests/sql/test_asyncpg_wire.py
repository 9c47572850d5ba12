"""What is particular to asyncpg under `leasehold.sql`: no autocommit, loans of a pool, prepared statements."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from sqlalchemy import text

import leasehold
from leasehold.errors import ConfigurationError, InFlight, RetryTransaction, StaleFence
from leasehold.sql import (
    DatabaseRegister,
    IdempotencyKeys,
    fenced_update_async,
    guard_async,
    is_retryable,
    transaction_lock,
    transaction_lock_async,
)
from leasehold.sql.wires import wire_of
from leasehold.sql.wires.asyncpg import gives_rows
from tests.servers.postgres import fresh_database
from tests.sql.async_desks import asyncpg_engine
from tests.sql.desks import fresh_schema
from tests.waiting import two_in_turn_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from verification.lab.pgbouncer import PgBouncer
    from verification.lab.postgres import PostgresServer

KEYS = IdempotencyKeys("charges", wait=0)


def with_pool(url: str, story: Callable[[leasehold.AsyncClient, Any], Awaitable[None]], **words: Any) -> None:
    async def main() -> None:
        pool = await asyncpg.create_pool(url, min_size=0, max_size=4, **words)
        async with leasehold.connect_async("memory://") as client:
            try:
                await story(client, pool)
            finally:
                pool.terminate()

    asyncio.run(main())


def test_outside_a_transaction_everything_is_refused(postgres: PostgresServer) -> None:
    async def story(client: leasehold.AsyncClient, pool: Any) -> None:
        async with client.lock("account").hold() as lease, pool.acquire() as connection:
            with pytest.raises(ConfigurationError, match="outside a transaction"):
                await guard_async(connection, lease)
            with pytest.raises(ConfigurationError, match="outside a transaction"):
                await transaction_lock_async(connection, "account")
            with pytest.raises(ConfigurationError, match="transaction"):
                async with KEYS.attempt_async(connection, "k", fingerprint="x"):
                    pass
            await connection.execute("BEGIN")  # one of the user's own does as well
            await guard_async(connection, lease)
            await connection.execute("COMMIT")

    with_pool(fresh_schema(postgres), story)


def test_engine_that_commits_by_itself_is_refused(postgres: PostgresServer) -> None:
    async def main() -> None:
        engine = asyncpg_engine(fresh_schema(postgres), isolation_level="AUTOCOMMIT")
        async with leasehold.connect_async("memory://") as client, client.lock("account").hold() as lease:
            async with engine.connect() as connection:
                with pytest.raises(ConfigurationError, match="outside a transaction"):
                    await guard_async(connection, lease)
        await engine.dispose()

    asyncio.run(main())


def test_pool_itself_and_what_was_given_back_are_refused(postgres: PostgresServer) -> None:
    async def story(client: leasehold.AsyncClient, pool: Any) -> None:
        async with client.lock("account").hold() as lease:
            with pytest.raises(ConfigurationError, match="async with pool"):
                await guard_async(pool, lease)
            async with pool.acquire() as connection:
                pass
            with pytest.raises(asyncpg.InterfaceError, match="released"):
                await guard_async(connection, lease)
            closed = await asyncpg.connect(fresh_schema(postgres))
            await closed.close()
            with pytest.raises(ConfigurationError, match="closed"):
                await guard_async(closed, lease)

    with_pool(fresh_schema(postgres), story)


def test_table_is_looked_for_once_per_session_and_not_once_per_loan(postgres: PostgresServer) -> None:
    """The proxy of a pool is a new object each time: what is remembered must not be remembered with it."""

    async def story(client: leasehold.AsyncClient, pool: Any) -> None:
        asked: list[str] = []
        async with client.lock("account").hold() as lease:
            for turn in range(4):
                async with pool.acquire() as connection:
                    assert wire_of(connection).driver is connection._con
                    asked.clear()
                    connection.add_query_logger(lambda record: asked.append(record.query))
                    async with connection.transaction():
                        await guard_async(connection, lease)
                    await asyncio.sleep(0)  # loggers are called by the loop
                    await asyncio.sleep(0)
                    looked = [query for query in asked if "nspname" in query]
                    assert len(looked) == (0 if turn >= 2 else len(looked))
                    assert turn < 2 or any("leasehold_guard" in query for query in asked)

    with_pool(fresh_schema(postgres), story, max_inactive_connection_lifetime=0)


def test_guard_that_is_cancelled_while_it_waits_leaves_nothing(postgres: PostgresServer) -> None:
    async def story(client: leasehold.AsyncClient, pool: Any) -> None:
        async with client.lock("account").hold() as lease, pool.acquire() as first:
            async with first.transaction():
                await guard_async(first, lease)
            async with first.transaction():
                await guard_async(first, lease)

                async def second() -> None:
                    async with pool.acquire() as connection, connection.transaction():
                        await guard_async(connection, lease)

                task = asyncio.create_task(second())
                while not await first.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                    await asyncio.sleep(0.01)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            async with pool.acquire() as third, third.transaction():
                await guard_async(third, lease)

    with_pool(fresh_schema(postgres), story)


@pytest.mark.parametrize("kind", ["asyncpg", "sqlalchemy"])
def test_conflict_at_a_higher_level_is_told_apart(postgres: PostgresServer, kind: str) -> None:
    url = fresh_schema(postgres)
    engine = asyncpg_engine(url, isolation_level="REPEATABLE READ")

    @asynccontextmanager
    async def begin(pool: Any) -> AsyncIterator[Any]:
        if kind == "asyncpg":
            async with pool.acquire() as connection, connection.transaction(isolation="repeatable_read"):
                await connection.fetch("SELECT 1")
                yield connection
        else:
            async with engine.begin() as tx:
                await tx.execute(text("SELECT 1"))
                yield tx

    async def story(client: leasehold.AsyncClient, pool: Any) -> None:
        async with client.lock("account").hold() as lease:
            async with begin(pool) as first:
                await guard_async(first, lease)
            with pytest.raises(RetryTransaction) as caught:
                async with begin(pool) as late:
                    async with begin(pool) as first:
                        await guard_async(first, lease)
                    await guard_async(late, lease)
            assert is_retryable(caught.value)
        await engine.dispose()

    with_pool(url, story)


def test_deadlock_of_the_users_own_statements_is_retryable(postgres: PostgresServer) -> None:
    async def story(_: leasehold.AsyncClient, pool: Any) -> None:
        await pool.execute("CREATE TABLE stock (id integer PRIMARY KEY, n integer)")
        await pool.execute("INSERT INTO stock VALUES (1, 0), (2, 0)")
        both = asyncio.Barrier(2)

        async def take(one: int, two: int) -> None:
            async with pool.acquire() as connection, connection.transaction():
                await connection.execute("SET LOCAL deadlock_timeout = '20ms'")
                await connection.execute("UPDATE stock SET n = n + 1 WHERE id = $1", one)
                await both.wait()
                await connection.execute("UPDATE stock SET n = n + 1 WHERE id = $1", two)

        outcomes = await asyncio.gather(take(1, 2), take(2, 1), return_exceptions=True)
        (error,) = [each for each in outcomes if each is not None]
        assert is_retryable(error)

    with_pool(fresh_schema(postgres), story)


def test_row_with_a_fence_of_its_own(postgres: PostgresServer) -> None:
    """Values are of the types that the columns have; names are quoted, whatever is in them."""
    name = "a\"b (RETURNING) '; -- %s $1"
    quoted = '"' + name.replace('"', '""') + '"'

    async def story(client: leasehold.AsyncClient, pool: Any) -> None:
        stale, current = await two_in_turn_async(client.lock("order"))
        columns = "id smallint PRIMARY KEY, paid boolean, sum numeric, body jsonb, fence bigint NOT NULL"
        async with pool.acquire() as connection:
            await connection.execute(f"CREATE TABLE {quoted} ({columns})")
            await connection.execute(f"INSERT INTO {quoted} VALUES (1, false, 0, '{{}}', 0), (2, false, 0, '{{}}', 0)")
            with pytest.raises(ConfigurationError, match="fits 2 rows"):
                async with connection.transaction():
                    await fenced_update_async(connection, current, name, {"sum": 9}, where={"paid": False})
            values: dict[str, object] = {"paid": True, "sum": 3, "body": json.dumps({"a": 1})}
            assert await fenced_update_async(connection, current, name, values, where={"id": 1})
            assert not await fenced_update_async(connection, current, name, values, where={"id": 3})
            with pytest.raises(StaleFence):
                await fenced_update_async(connection, stale, name, values, where={"id": 1})
            row = await connection.fetchrow(f"SELECT paid, sum, body, fence FROM {quoted} WHERE id = 1")
            assert tuple(row) == (True, 3, '{"a": 1}', current.fence)

    with_pool(fresh_schema(postgres), story)


def test_transaction_lock_lasts_until_the_end_of_the_transaction(postgres: PostgresServer) -> None:
    async def story(_: leasehold.AsyncClient, pool: Any) -> None:
        engine = asyncpg_engine(fresh_schema(postgres))
        async with pool.acquire() as one, pool.acquire() as two:
            async with one.transaction(), two.transaction():
                assert await transaction_lock_async(one, "job")
                assert not await transaction_lock_async(two, "job", wait=False)
                with pytest.raises(ConfigurationError, match="async"):
                    transaction_lock(two, "job")
            async with two.transaction():
                assert await transaction_lock_async(two, "job", wait=False)
        async with engine.begin() as one, engine.begin() as two:
            assert await transaction_lock_async(one, "job")
            assert not await transaction_lock_async(two, "job", wait=False)
        await engine.dispose()

    with_pool(fresh_schema(postgres), story)


def test_codecs_of_the_users_own_do_not_matter(postgres: PostgresServer) -> None:
    async def init(connection: Any) -> None:
        for name in ("json", "jsonb"):
            await connection.set_type_codec(name, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")

    async def story(client: leasehold.AsyncClient, pool: Any) -> None:
        async with client.lock("account").hold() as lease:
            for _ in range(2):
                async with pool.acquire() as connection, connection.transaction():
                    await guard_async(connection, lease)
                    async with KEYS.attempt_async(connection, "k", fingerprint="x") as attempt:
                        if not attempt.replayed:
                            await attempt.complete({"id": 7})
                    assert attempt.result == {"id": 7}

    with_pool(fresh_schema(postgres), story, init=init)


def test_register_of_a_web_application(postgres: PostgresServer) -> None:
    async def story(_: leasehold.AsyncClient, pool: Any) -> None:
        @asynccontextmanager
        async def begin() -> AsyncIterator[Any]:
            async with pool.acquire() as connection, connection.transaction():
                yield connection

        register = DatabaseRegister(begin)
        await register.raise_fence("account", 5)
        await register.raise_fence("account", 5)
        with pytest.raises(StaleFence):
            await register.raise_fence("account", 4)

    with_pool(fresh_schema(postgres), story)


def test_behind_a_pooler_without_a_cache_of_statements(postgres: PostgresServer, pgbouncer: PgBouncer) -> None:
    async def story(client: leasehold.AsyncClient, pool: Any) -> None:
        stale, current = await two_in_turn_async(client.lock("account"))

        async def work(number: int) -> None:
            async with pool.acquire() as connection, connection.transaction():
                await guard_async(connection, current, resource=f"account {number % 2}")
                async with KEYS.attempt_async(connection, f"k {number}", fingerprint="x") as attempt:
                    await attempt.complete(number)

        await work(0)  # makes the tables
        for _ in range(3):
            try:
                await asyncio.gather(*(work(number) for number in range(1, 9)))
                break
            except InFlight:  # another is at the same key
                continue
        async with pool.acquire() as connection, connection.transaction():
            with pytest.raises(StaleFence):
                await guard_async(connection, stale, resource="account 1")

    with_pool(pgbouncer.url(fresh_database(postgres)), story, statement_cache_size=0)


@pytest.mark.parametrize(
    ("statement", "answer"),
    [
        ("SELECT 1", True),
        ("\n-- UPDATE\nselect 1 FOR UPDATE", True),
        ("WITH a AS (UPDATE t SET n = 1 RETURNING n) SELECT * FROM a", True),
        ("WITH a AS (SELECT f(1) FROM t) UPDATE t SET n = (SELECT 1)", False),
        ("WITH a AS (INSERT INTO t VALUES (1) RETURNING n) DELETE FROM t", False),
        ("INSERT INTO t SELECT 1", False),
        ("INSERT INTO t SELECT 1 RETURNING n", True),
        ("UPDATE \"a (RETURNING\" SET \"SELECT\" = 'it''s RETURNING'", False),
        ("DELETE FROM t USING (SELECT 1 FOR UPDATE) AS gone", False),
        ("CREATE TABLE t AS SELECT 1", False),
        ("DO $$ BEGIN RETURNING SELECT END $$", False),
        ("SAVEPOINT a", False),
    ],
)
def test_which_statements_give_rows(statement: str, answer: bool) -> None:
    assert gives_rows(statement) is answer
