"""PostgreSQL seen from the client: its connections, threads, tasks that are cancelled, forks, borrowed pools."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import sqlalchemy
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy.ext.asyncio import create_async_engine

import leasehold
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from tests.stores.support import eventually, waiters
from verification.lab.postgres import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator


def ours(server: PostgresServer, database: str) -> int:
    """How many connections of ours there are to a database."""
    name = database.rpartition("/")[2]
    query = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}' AND application_name = 'leasehold'"
    ((count,),) = server.run(query)
    assert isinstance(count, int)
    return count


def test_two_hundred_held_names_are_renewed_over_few_connections(postgres: PostgresServer, database: str) -> None:
    with leasehold.connect(database, ttl=4) as client:
        leases = [client.lock(f"name {number}").acquire() for number in range(200)]
        end = time.monotonic() + 6
        most = 0
        while time.monotonic() < end:
            most = max(most, ours(postgres, database))
            time.sleep(0.1)
        assert most <= 5
        for lease in leases:
            lease.check()
        assert len(client.locks()) == 200
        assert all(lease.release() for lease in leases)


def test_four_hundred_idle_clients_hold_no_connection(postgres: PostgresServer, database: str) -> None:
    clients = [leasehold.connect(database, ttl=20) for _ in range(400)]
    try:
        for start in range(0, 400, 40):
            for client in clients[start : start + 40]:
                client.lock("job").acquire(timeout=30).release()
            eventually(lambda: ours(postgres, database) < 50, "idle clients let go of their connections")
        eventually(lambda: ours(postgres, database) == 0, "idle clients hold no connection")
        with clients[0].lock("job").hold():
            assert clients[399].lock("job").try_acquire() is None
    finally:
        for client in clients:
            client.close()


def test_client_that_is_closed_while_its_listener_connects_ends_it(database: str) -> None:
    """It did not: nobody interrupted a connection that was made a moment later, and close() waited for it in vain."""
    backend: Any = find_store(database).open_backend(ThreadRuntime())
    listener, connecting = backend._listener, threading.Event()
    connect = listener._connect

    async def connect_slowly() -> Any:
        connecting.set()
        eventually(lambda: listener._closed)
        return await connect()

    listener._connect = connect_slowly
    listener.ensure()
    assert connecting.wait(30)
    run(backend.close())
    assert not listener._has_worker


def test_client_listens_only_while_somebody_waits(postgres: PostgresServer, database: str) -> None:
    name = database.rpartition("/")[2]
    listening = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}' AND query LIKE 'LISTEN%'"
    with leasehold.connect(database, ttl=20) as holder, leasehold.connect(database, ttl=20) as client:
        lease = holder.lock("job").acquire()
        assert postgres.run(listening) == [(0,)]
        lock = client.lock("job", fair="strict")  # a place for each
        threads = [threading.Thread(target=lambda: lock.acquire(timeout=60).release()) for _ in range(20)]
        for thread in threads:
            thread.start()
        eventually(lambda: waiters(holder, "job") == 20)
        eventually(lambda: postgres.run(listening) == [(1,)], "one connection listens for all twenty")
        lease.release()
        for thread in threads:
            thread.join()
        eventually(lambda: postgres.run(listening) == [(0,)], "nobody waits, nobody listens")


def test_notify_is_sent_only_when_somebody_waits(postgres: PostgresServer, database: str) -> None:
    """A NOTIFY takes a lock of the whole server at commit; nobody should pay for it without need."""
    with leasehold.connect(database, ttl=20) as client:
        client.lock("job").acquire().release()
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(
                "CREATE FUNCTION leasehold.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS "
                "'BEGIN RAISE EXCEPTION ''sent''; END'"
            )
            connection.execute("ALTER FUNCTION leasehold.advance_3 SET search_path = leasehold, pg_catalog")
        for _ in range(3):
            assert client.lock("job").acquire().release() is True
        with client.lock("job").hold():
            assert client.lock("job").try_acquire() is None


def test_unrelated_names_do_not_wait_for_each_other(postgres: PostgresServer, database: str) -> None:
    with leasehold.connect(database, ttl=20) as client:
        client.lock("stuck").acquire().release()
        with postgres.connect(database.rpartition("/")[2]) as blocker, blocker.transaction():
            blocker.execute("SELECT 1 FROM leasehold.lock FOR UPDATE")
            stuck = threading.Thread(target=lambda: client.lock("stuck").acquire(timeout=60).release())
            stuck.start()
            for number in range(10):
                client.lock(f"free {number}").acquire(timeout=10).release()
            assert stuck.is_alive()
        stuck.join()


def test_sixty_four_threads_share_four_connections(postgres: PostgresServer, database: str) -> None:
    done: list[int] = []
    with leasehold.connect(database, ttl=60) as client:

        def work(number: int) -> None:
            for _ in range(5):
                client.lock(f"name {number}").acquire(timeout=60).release()
            done.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(64)]
        for thread in threads:
            thread.start()
        most = 0
        while any(thread.is_alive() for thread in threads):
            most = max(most, ours(postgres, database))
        assert sorted(done) == list(range(64))
        assert most <= 5


@pytest.mark.parametrize("mode", ["rows", "session"])
def test_cancelled_tasks_leave_no_answer_for_the_next_one(database: str, mode: str) -> None:
    """Cancelled between request and answer, at any moment: the next caller must not get what was meant for another."""

    async def story() -> None:
        async with leasehold.connect_async(f"{database}?mode={mode}", ttl=20) as client:
            await (await client.lock("first").acquire()).release()
            for number in range(150):
                task = asyncio.create_task(client.lock("cancelled").try_acquire())
                await asyncio.sleep(number * 0.00002)
                task.cancel()
                await asyncio.wait([task])
                if not task.cancelled() and (lease := task.result()) is not None:
                    await lease.release()
                mine = await client.lock(f"name {number}").acquire(timeout=20)
                state = await client.inspect(f"name {number}")
                assert state is not None
                assert [holding.fence for holding in state.holdings] == [mine.fence]
                assert await mine.release() is True
            assert await client.inspect("cancelled") is None

    asyncio.run(story())


def test_sixty_four_tasks_of_one_loop(database: str) -> None:
    async def story() -> None:
        async with leasehold.connect_async(database, ttl=60) as client:

            async def work(number: int) -> None:
                for _ in range(5):
                    async with client.lock(f"name {number % 16}").hold(timeout=60):
                        inside[number % 16] += 1
                        assert inside[number % 16] == 1
                        await asyncio.sleep(0)
                        inside[number % 16] -= 1

            inside = [0] * 16
            await asyncio.gather(*(work(number) for number in range(64)))

    asyncio.run(story())


def test_event_loop_that_ends_without_close_leaves_no_connection(postgres: PostgresServer, database: str) -> None:
    async def story() -> None:
        client = leasehold.connect_async(database, ttl=20)
        await (await client.lock("job").acquire()).release()

    asyncio.run(story())
    eventually(lambda: ours(postgres, database) == 0)


@pytest.mark.parametrize("mode", ["rows", "session"])
def test_forked_child_opens_its_own_and_does_not_end_the_parents(database: str, mode: str) -> None:
    with leasehold.connect(f"{database}?mode={mode}", ttl=5) as client:
        lease = client.lock("parents").acquire()
        waits = threading.Thread(target=lambda: client.lock("parents").acquire(timeout=60).release())
        waits.start()
        if mode == "rows":
            eventually(lambda: waiters(client, "parents") == 1)
        for _ in range(3):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    mine = client.lock("childs").acquire(timeout=20)
                    code = 0 if mine.release() and client.lock("parents").try_acquire() is None else 2
                    client.close()
                finally:
                    os._exit(code)
            assert os.waitpid(pid, 0)[1] == 0
        lease.renew()
        assert lease.release() is True
        waits.join()


# --- pools and engines of the user's own


@pytest.fixture
def engine(database: str) -> Iterator[sqlalchemy.Engine]:
    """A plain engine."""
    engine = sqlalchemy.create_engine(database.replace("postgresql:", "postgresql+psycopg:"), pool_size=2)
    yield engine
    engine.dispose()


def use(client: leasehold.Client) -> None:
    """Hold, wait, hand over, look."""
    first = client.lock("job").acquire()
    got: list[leasehold.Lease] = []
    waits = threading.Thread(target=lambda: got.append(client.lock("job").acquire(timeout=60)))
    waits.start()
    eventually(lambda: waiters(client, "job") == 1)
    assert first.release() is True
    waits.join()
    assert got[0].fence > first.fence
    assert got[0].release() is True
    assert client.locks() == []


async def use_async(client: leasehold.AsyncClient) -> None:
    """The same on asyncio."""
    first = await client.lock("job").acquire()
    waits = asyncio.create_task(client.lock("job").acquire(timeout=60))
    while (state := await client.inspect("job")) is None or not state.waiting:
        await asyncio.sleep(0.01)
    assert await first.release() is True
    second = await waits
    assert second.fence > first.fence
    assert await second.release() is True


def test_borrowed_pool_and_engine_work_and_are_left_as_they_were(database: str, engine: sqlalchemy.Engine) -> None:
    adopted: Any
    with ConnectionPool(database, min_size=1, max_size=2) as adopted:
        with leasehold.connect(adopted, ttl=20) as client:
            use(client)
        with adopted.connection() as connection:
            assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
            assert connection.execute("SHOW default_transaction_isolation").fetchone() == ("read committed",)
    adopted = engine
    with leasehold.connect(adopted, ttl=20) as client:
        use(client)
    with engine.begin() as connection:
        assert connection.execute(sqlalchemy.text("SELECT 1")).scalar() == 1
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]  # a QueuePool has it


def test_borrowed_async_pool_and_engine_work(database: str) -> None:
    async def story() -> None:
        adopted: Any
        async with AsyncConnectionPool(database, min_size=1, max_size=2, open=False) as adopted:
            async with leasehold.connect_async(adopted, ttl=20) as client:
                await use_async(client)
        adopted = create_async_engine(database.replace("postgresql:", "postgresql+psycopg:"), pool_size=2)
        async with leasehold.connect_async(adopted, ttl=20) as client:
            await use_async(client)
        await adopted.dispose()

    asyncio.run(story())


def test_what_cannot_be_borrowed_from_is_refused_in_a_sentence(database: str, engine: sqlalchemy.Engine) -> None:
    adopted: Any
    with (
        psycopg.connect(database) as adopted,
        pytest.raises(leasehold.ConfigurationError, match="transaction of yours"),
    ):
        leasehold.connect(adopted)
    adopted = sqlalchemy.create_engine("sqlite://")
    with pytest.raises(leasehold.ConfigurationError, match=r"postgresql\+psycopg"):
        leasehold.connect(adopted)
    adopted = create_async_engine(database.replace("postgresql:", "postgresql+psycopg:"))
    with pytest.raises(leasehold.ConfigurationError, match="connect_async"):
        leasehold.connect(adopted).lock("job")


def test_pool_of_the_parent_is_refused_in_a_forked_child_and_an_engine_is_not(
    database: str, engine: sqlalchemy.Engine
) -> None:
    adopted: Any
    with ConnectionPool(database, min_size=1, max_size=2) as adopted, leasehold.connect(adopted) as client:
        client.lock("job").acquire().release()
        assert in_child(lambda: refused(client)) == 0
        client.lock("job").acquire().release()
    adopted = engine
    with leasehold.connect(adopted, ttl=20) as client:
        client.lock("job").acquire().release()
        assert in_child(lambda: client.lock("job").acquire(timeout=20).release()) == 0
        client.lock("job").acquire(timeout=20).release()


def refused(client: leasehold.Client) -> bool:
    with pytest.raises(leasehold.ConfigurationError, match="fork"):
        client.lock("job").acquire()
    return True


def in_child(work: Any) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]
