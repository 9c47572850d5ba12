"""The store over asyncpg: a pool, or an engine that uses it, which belong to the program and are left as they were."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import create_async_engine

import leasehold
from leasehold._backends.postgres import adopt
from leasehold._runtimes.asyncio import AsyncioRuntime
from leasehold._urls import find_store
from leasehold.errors import BackendRejected, BackendUnavailable, ClientClosed, ConfigurationError, OutcomeUnknown
from leasehold.values import Claim, Grant, Holder, Mode
from tests.servers.postgres import fresh_database
from verification.lab.postgres import postgres_url
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from verification.lab.pgbouncer import PgBouncer
    from verification.lab.postgres import PostgresServer

LIMIT = 60
KINDS = ["pool", "engine"]


@asynccontextmanager
async def lender(kind: str, url: str, size: int = 2, **words: Any) -> AsyncIterator[Any]:
    if kind == "pool":
        pool = await asyncpg.create_pool(url, min_size=0, max_size=size, **words)
        try:
            yield pool
        finally:
            pool.terminate()
    else:
        driver = url.replace("postgresql:", "postgresql+asyncpg:")
        engine = create_async_engine(driver, pool_size=size, max_overflow=0, connect_args=words)
        yield engine
        await engine.dispose()


def with_client(
    kind: str,
    url: str,
    story: Callable[[leasehold.AsyncClient, Any], Awaitable[None]],
    size: int = 2,
    options: dict[str, object] | None = None,
    **words: Any,
) -> None:
    async def main() -> None:
        async with lender(kind, url, size, **words) as lent:
            async with leasehold.connect_async(lent, ttl=20, options=options) as client:
                await asyncio.wait_for(story(client, lent), LIMIT * 2)

    asyncio.run(main())


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LIMIT):
        while not await condition():
            await asyncio.sleep(0.01)


async def is_idle(lent: Any) -> bool:
    """Whether everything that was lent has been given back."""
    if hasattr(lent, "get_idle_size"):
        return bool(lent.get_idle_size() == lent.get_size())
    return bool(lent.pool.checkedout() == 0)


async def waits(client: leasehold.AsyncClient, name: str, count: int = 1) -> bool:
    state = await client.inspect(name)
    return state is not None and len(state.waiting) == count


async def sessions(server: PostgresServer, database: str, query: str = "%") -> int:
    name = database.rpartition("/")[2]
    asked = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}' AND query LIKE '{query}'"
    ((count,),) = await asyncio.to_thread(server.run, asked)
    assert isinstance(count, int)
    return count


async def end_sessions(server: PostgresServer, database: str) -> None:
    name = database.rpartition("/")[2]
    await asyncio.to_thread(
        server.run, f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{name}'"
    )


def claim_of(runtime: AsyncioRuntime, name: str = "job") -> Claim:
    return Claim(f"ns:{name}", runtime.owner(), 60.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_holds_waits_and_hands_over_by_notification(
    postgres: PostgresServer, database: str, kind: str, size: int
) -> None:
    """One connection is enough: who listens has one of its own, which goes when nobody waits."""

    async def story(client: leasehold.AsyncClient, lent: Any) -> None:
        first = await client.lock("job").acquire()
        task = asyncio.create_task(client.lock("job").acquire(timeout=LIMIT))
        await until(lambda: waits(client, "job"))
        await until(lambda: listens(1))
        await first.renew()
        assert await first.release() is True
        second = await task
        assert second.fence > first.fence
        assert await second.release() is True
        assert await client.locks() == []
        await until(lambda: listens(0))

    async def listens(count: int) -> bool:
        return await sessions(postgres, database, "LISTEN%") == count

    with_client(kind, database, story, size)


@pytest.mark.parametrize("kind", KINDS)
def test_lent_connections_are_left_as_they_were(database: str, kind: str) -> None:
    async def main() -> None:
        async with lender(kind, database) as lent:
            async with leasehold.connect_async(lent, ttl=20) as client:
                async with client.lock("job").hold():
                    pass
            assert await is_idle(lent)
            if kind == "pool":
                async with lent.acquire() as connection:
                    assert not connection.is_in_transaction()
                    assert await connection.fetchval("SHOW default_transaction_isolation") == "read committed"
                    assert await connection.fetchval("SELECT count(*) FROM pg_listening_channels()") == 0

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_doctor_finds_the_same_as_over_psycopg(database: str, kind: str) -> None:
    async def main() -> None:
        runtime = AsyncioRuntime()
        async with lender(kind, database) as lent:
            backend: Any = adopt(lent, {}).open_backend(runtime)
            assert isinstance(await backend.try_acquire(claim_of(runtime)), Grant)
            other: Any = find_store(database).open_backend(runtime)
            found, expected = [
                [(finding.check, finding.level) for finding in await each.examine()] for each in (backend, other)
            ]
            assert found == expected
            await backend.close()
            await other.close()

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_a_pool_or_engine_serves_the_event_loop_that_it_was_first_used_on(kind: str, database: str) -> None:
    async def use(client: leasehold.AsyncClient) -> None:
        async with client.lock("x").hold(LIMIT):
            pass

    runner = asyncio.Runner()
    stack = AsyncExitStack()
    client = leasehold.connect_async(runner.run(stack.enter_async_context(lender(kind, database))))
    runner.run(use(client))
    with pytest.raises(
        ConfigurationError, match=r"belong to the event loop .*; give connect_async\(\) a postgresql://"
    ):
        asyncio.run(use(client))
    runner.run(use(client))
    runner.run(client.close())
    runner.run(stack.aclose())
    runner.close()


def test_program_without_psycopg_needs_none(database: str) -> None:
    program = f"""
import sys
for name in ("psycopg", "psycopg_pool", "psycopg_c", "psycopg_binary", "sqlalchemy"):
    sys.modules[name] = None
import asyncio, asyncpg, leasehold
from leasehold.sql import guard_async

async def main():
    pool = await asyncpg.create_pool({database!r}, min_size=1, max_size=2)
    async with leasehold.connect_async(pool, ttl=20) as client:
        async with client.lock("job").hold() as lease:
            waits = asyncio.create_task(client.lock("job").acquire(timeout=60))
            while not (await client.inspect("job")).waiting:
                await asyncio.sleep(0.01)
            async with pool.acquire() as connection, connection.transaction():
                await guard_async(connection, lease)
        await (await waits).release()
    await pool.close()
    try:
        leasehold.connect({database!r}).lock("job").acquire()
    except leasehold.ConfigurationError as error:
        print(error)

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, text=True, timeout=LIMIT * 2
    )
    assert done.returncode == 0, done.stderr
    assert "needs psycopg 3" in done.stdout
    assert "passes its pool instead" in done.stdout


def test_what_cannot_be_used_is_refused_in_a_sentence(database: str) -> None:
    async def main() -> None:
        connection = await asyncpg.connect(database)
        adopted: Any = connection
        with pytest.raises(ConfigurationError, match="in no transaction of yours"):
            leasehold.connect_async(adopted)
        await connection.close()
        async with lender("pool", database) as adopted:
            with pytest.raises(ConfigurationError, match="connect_async"):
                leasehold.connect(adopted).lock("job")
        pool: Any = asyncpg.create_pool(database, min_size=0)
        async with leasehold.connect_async(pool) as client:
            with pytest.raises(ConfigurationError, match="was made and not opened"):
                await client.lock("job").acquire()
        with pytest.raises(ConfigurationError, match="pool or an engine of your own"):
            leasehold.connect_async(database.replace("postgresql:", "postgresql+asyncpg:"))

    asyncio.run(main())


def test_label_shows_no_password() -> None:
    async def main() -> None:
        for pool in (
            asyncpg.create_pool("postgresql://me:secret@h1:1,h2:2/data?password=secret", min_size=0),
            asyncpg.create_pool(host="h1", user="me", password="secret", database="data", min_size=0),
        ):
            backend: Any = adopt(pool, {}).open_backend(AsyncioRuntime())
            assert backend.label.startswith("postgresql://me@h1")
            assert backend.label.endswith("/data")
            assert "secret" not in backend.label

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_sessions_that_the_server_ends_cost_no_lock_and_no_turn(
    postgres: PostgresServer, database: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Idle ones are replaced, and the one that listened, too; a waiter has its turn all the same."""
    monkeypatch.setattr("leasehold._backends.postgres.notifications.LISTEN_AGAIN", 0.3)

    async def story(client: leasehold.AsyncClient, lent: Any) -> None:
        lease = await client.lock("job").acquire()
        task = asyncio.create_task(client.lock("job").acquire(timeout=LIMIT))
        await until(lambda: waits(client, "job"))
        for _ in range(3):
            await until(lambda: listens(1))
            await end_sessions(postgres, database)
            await until(lambda: renewed(lease))
        assert await lease.release() is True
        assert await (await task).release() is True

    async def listens(count: int) -> bool:
        return await sessions(postgres, database, "LISTEN%") == count

    async def renewed(lease: leasehold.AsyncLease) -> bool:
        try:
            await lease.renew()
        except leasehold.BackendError:  # its connection was one that had ended
            return False
        return True

    with_client(kind, database, story)


@pytest.mark.parametrize("kind", KINDS)
def test_connection_that_ends_inside_a_request_leaves_its_outcome_open(
    postgres: PostgresServer, database: str, kind: str
) -> None:
    async def main() -> None:
        runtime = AsyncioRuntime()
        async with lender(kind, database) as lent, lender("pool", database) as other:
            backend: Any = adopt(lent, {}).open_backend(runtime)
            assert isinstance(await backend.try_acquire(claim_of(runtime)), Grant)
            claim = claim_of(runtime)
            async with other.acquire() as blocker, blocker.transaction():
                await blocker.execute("SELECT 1 FROM leasehold.lock FOR UPDATE")
                request = asyncio.create_task(backend.join(claim))
                while not await blocker.fetchval(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE NOT granted"
                ):
                    await asyncio.sleep(0.01)
                with pytest.raises(OutcomeUnknown):
                    await request
            await backend.withdraw(claim)
            assert len((await backend.inspect(claim.key)).waiting) == 0
            await backend.close()

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_lost_answer_is_no_refusal_and_the_grant_is_withdrawn(
    postgres: PostgresServer, database: str, kind: str
) -> None:
    async def main() -> None:
        with FaultProxy(("127.0.0.1", postgres.port)) as proxy:
            url = postgres_url(proxy.address[1], database.rpartition("/")[2], "postgres")
            async with lender(kind, url, size=1) as lent, leasehold.connect_async(lent, ttl=LIMIT * 2) as client:
                runtime = AsyncioRuntime()
                backend: Any = adopt(lent, {}).open_backend(runtime)
                for _ in range(3):
                    await (await client.lock("job").acquire()).release()  # prepared by now: one request, one answer
                    await backend.withdraw(claim_of(runtime), doubt=False)
                proxy.lose(b"ns:another")
                with pytest.raises(OutcomeUnknown):
                    await backend.try_acquire(claim_of(runtime, "another"))
                proxy.lose(b"leasehold:job")
                lease = await client.lock("job").acquire(timeout=LIMIT)  # before the ttl of what was withdrawn is over
                assert await lease.release() is True
                assert await client.locks() == []
                await backend.close()

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("state", ["hangs", "is used up"])
def test_call_with_little_time_ends_in_time(postgres: PostgresServer, database: str, kind: str, state: str) -> None:
    """However long an answer, or the pool, may take: a third of that is more than enough here."""

    async def main() -> None:
        runtime = AsyncioRuntime()
        with FaultProxy(("127.0.0.1", postgres.port)) as proxy:
            url = postgres_url(proxy.address[1], database.rpartition("/")[2], "postgres")
            async with lender(kind, url, size=1) as lent:
                backend: Any = adopt(lent, {"answer_timeout": str(LIMIT)}).open_backend(runtime)
                assert isinstance(await backend.try_acquire(claim_of(runtime, "first one")), Grant)
                taken = None
                await until(lambda: is_idle(lent))  # what was lent is reset before it is given back
                if state == "hangs":
                    proxy.black_hole()
                else:
                    taken = await (lent.acquire() if kind == "pool" else lent.connect())
                with pytest.raises(OutcomeUnknown if state == "hangs" else BackendUnavailable):
                    late = runtime.now() + 0.5
                    await asyncio.wait_for(backend.try_acquire(claim_of(runtime), late), LIMIT / 3)
                if state == "hangs":
                    proxy.heal()
                    proxy.cut()
                await backend.close()
                if taken is not None:
                    await (lent.release(taken) if kind == "pool" else taken.close())

    asyncio.run(main())


def test_pool_that_is_used_up_or_closed_says_so(database: str) -> None:
    async def main() -> None:
        runtime = AsyncioRuntime()
        async with lender("pool", database, size=1) as pool:
            backend: Any = adopt(pool, {"answer_timeout": str(LIMIT)}).open_backend(runtime)
            async with pool.acquire():
                with pytest.raises(BackendUnavailable, match=r"large enough.*none was free"):
                    await backend.try_acquire(claim_of(runtime), runtime.now() + 0.2)
            grant = await backend.try_acquire(claim_of(runtime))
            assert isinstance(grant, Grant)
            await pool.close()
            with pytest.raises(BackendUnavailable, match="pool is clos"):
                await backend.release(grant)
            await backend.close()
            with pytest.raises(ClientClosed):
                await backend.release(grant)

    asyncio.run(main())


def test_application_can_close_its_pool_while_a_client_waits(database: str) -> None:
    """Nothing of ours keeps one of its connections for longer than a request."""

    async def main() -> None:
        async with lender("pool", database) as pool, lender("pool", database) as other:
            holder = leasehold.connect_async(other, ttl=20)
            client = leasehold.connect_async(pool, ttl=20)
            lease = await holder.lock("job").acquire()
            task = asyncio.create_task(client.lock("job").acquire(timeout=LIMIT))
            await until(lambda: waits(holder, "job"))
            await asyncio.wait_for(pool.close(), LIMIT)
            await client.close()
            with pytest.raises(leasehold.LeaseholdError):
                await task
            assert await lease.release() is True
            await holder.close()

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_cancelled_tasks_leave_no_answer_and_no_loan_behind(database: str, kind: str) -> None:
    """Cancelled while it waits for a connection, between request and answer, or while that is given back."""

    async def story(client: leasehold.AsyncClient, lent: Any) -> None:
        await (await client.lock("first").acquire()).release()
        for number in range(60):
            tasks = [asyncio.create_task(client.lock("cancelled").try_acquire()) for _ in range(4)]
            await asyncio.sleep(number * 0.0001)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for task in tasks:
                if not task.cancelled() and (lease := task.result()) is not None:
                    await lease.release()
            mine = await client.lock(f"name {number}").acquire(timeout=LIMIT)
            state = await client.inspect(f"name {number}")
            assert state is not None
            assert [holding.fence for holding in state.holdings] == [mine.fence]
            assert await mine.release() is True
        assert await client.inspect("cancelled") is None
        await until(lambda: is_idle(lent))

    with_client(kind, database, story)


@pytest.mark.parametrize("kind", KINDS)
def test_behind_a_pooler_waiters_poll(postgres: PostgresServer, pgbouncer: PgBouncer, kind: str) -> None:
    database = fresh_database(postgres)

    async def story(client: leasehold.AsyncClient, lent: Any) -> None:
        async def work(number: int) -> None:
            for _ in range(4):
                async with client.lock(f"job {number % 3}").hold(timeout=LIMIT):
                    inside[number % 3] += 1
                    assert inside[number % 3] == 1
                    await asyncio.sleep(0.002)
                    inside[number % 3] -= 1

        inside = [0] * 3
        await asyncio.gather(*(work(number) for number in range(9)))
        assert await sessions(postgres, f"/{database}", "LISTEN%") == 0

    words: dict[str, Any] = {"statement_cache_size": 0}
    if kind == "engine":
        words["prepared_statement_cache_size"] = 0
    with_client(kind, pgbouncer.url(database), story, **words)


def test_prepared_statements_behind_a_pooler_are_explained(postgres: PostgresServer, pgbouncer: PgBouncer) -> None:
    url = pgbouncer.url(fresh_database(postgres))

    async def main() -> None:
        runtime = AsyncioRuntime()
        async with lender("pool", url, 1) as pool, lender("pool", url, 4, statement_cache_size=0) as other:
            backend: Any = adopt(pool, {}).open_backend(runtime)
            grant = await backend.try_acquire(claim_of(runtime))
            async with AsyncExitStack() as stack:
                for _ in range(4):  # among the servers that these have is the one on which it was prepared
                    one = await stack.enter_async_context(other.acquire())
                    await stack.enter_async_context(one.transaction())
                    await one.fetchval("SELECT 1")
                with pytest.raises(BackendRejected, match="statement_cache_size=0"):
                    await backend.try_acquire(claim_of(runtime, "another"))
            assert isinstance(grant, Grant)
            await backend.close()

    asyncio.run(main())
