"""PostgreSQL and time: a call is over when its caller has no use for an answer any more, whatever hangs."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy.ext.asyncio import create_async_engine

import leasehold
from leasehold._backends.postgres import adopt
from leasehold._runtimes.asyncio import AsyncioRuntime
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.errors import ClientClosed
from leasehold.values import Claim, Grant, Holder, Mode
from tests.stores.support import eventually
from verification.lab.postgres import postgres_url
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from leasehold.spi import Runtime
    from leasehold.testing import contract
    from verification.lab.postgres import PostgresServer

MODES = ["rows", "session"]
OWN_LIMIT = 20  # seconds for an answer and for connecting
GIVEN = 1.0  # what a caller gives
BACK = OWN_LIMIT / 3  # it is back by then, on any machine


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[FaultProxy]:
    """Between the clients of this test and the server."""
    with FaultProxy(("127.0.0.1", postgres.port)) as proxy:
        yield proxy


@pytest.fixture
def url(proxy: FaultProxy, database: str) -> str:
    """The way through the proxy; the tables exist."""
    with leasehold.connect(database) as client:
        client.lock("first").acquire().release()
    name = database.rpartition("/")[2]
    return f"{postgres_url(proxy.port, name, 'postgres')}?answer_timeout={OWN_LIMIT}&connect_timeout={OWN_LIMIT}"


def claim_of(runtime: Runtime, name: str = "job") -> Claim:
    return Claim(f"leasehold:{name}", runtime.owner(), 60.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))


async def fails_in_time(runtime: Runtime, call: Callable[[float], Awaitable[Any]]) -> leasehold.BackendError:
    """The error of a call that must be over long before the store's own limit."""
    before = runtime.now()
    with pytest.raises(leasehold.BackendError) as caught:
        await call(before + GIVEN)
    assert runtime.now() - before < BACK, "the caller was kept for longer than it asked for"
    return caught.value


@pytest.mark.parametrize("mode", MODES)
def test_no_verb_keeps_its_caller_for_longer_than_it_has_use_for_an_answer(
    driver: contract.Driver, proxy: FaultProxy, url: str, mode: str
) -> None:
    runtime = driver.runtime()
    backend: Any = find_store(f"{url}&mode={mode}").open_backend(runtime)

    async def story() -> None:
        claim = claim_of(runtime)
        grant = await backend.try_acquire(claim)
        assert isinstance(grant, Grant)
        proxy.black_hole()
        unknown = await fails_in_time(runtime, lambda until: backend.renew([grant], until))
        assert isinstance(unknown, leasehold.OutcomeUnknown), "it was sent"
        for call in (
            lambda until: backend.release(grant, until),
            lambda until: backend.try_acquire(claim_of(runtime), until),
            lambda until: backend.withdraw(claim, until),
        ):
            sure = await fails_in_time(runtime, call)
            assert isinstance(sure, leasehold.BackendUnavailable), "nothing was sent: there is no usable connection"
        await backend.close()

    driver.run(story())


@pytest.mark.parametrize("mode", MODES)
def test_connecting_to_a_server_that_is_mute_ends_in_time(
    driver: contract.Driver, proxy: FaultProxy, url: str, mode: str
) -> None:
    runtime = driver.runtime()
    backend: Any = find_store(f"{url}&mode={mode}").open_backend(runtime)

    async def story() -> None:
        proxy.black_hole()
        error = await fails_in_time(runtime, lambda until: backend.try_acquire(claim_of(runtime), until))
        assert isinstance(error, leasehold.BackendUnavailable), "nothing was sent"
        await backend.close()

    driver.run(story())


def test_waiter_that_asks_for_its_turn_is_answered_or_let_go_in_time(
    driver: contract.Driver, proxy: FaultProxy, url: str
) -> None:
    runtime = driver.runtime()
    backend: Any = find_store(url).open_backend(runtime)

    async def story() -> None:
        assert isinstance(await backend.try_acquire(claim_of(runtime)), Grant)
        place = await backend.join(claim_of(runtime))
        proxy.black_hole()
        await fails_in_time(runtime, lambda until: backend.turn(place, until))
        await fails_in_time(runtime, lambda until: backend.join(claim_of(runtime), until))
        await backend.close()

    driver.run(story())


def test_leader_in_a_hurry_does_not_speak_for_those_who_have_time(database: str, postgres: PostgresServer) -> None:
    """The one that asks for all is let go early; the others get their answers once the row is free again."""
    runtime = ThreadRuntime()
    backend: Any = find_store(f"{database}?answer_timeout=60").open_backend(runtime)
    assert isinstance(run(backend.try_acquire(claim_of(runtime))), Grant)
    places = [run(backend.join(claim_of(runtime))) for _ in range(4)]
    turns, outcomes = backend._turns, []

    def turn(place: Any, until: float) -> None:
        try:
            outcomes.append(run(backend.turn(place, until)))
        except leasehold.LeaseholdError as error:
            outcomes.append(error)

    turns._leader, turns._busy_until = object(), runtime.now() + 60  # so that all four come into one request
    hasty = threading.Thread(target=turn, args=(places[0], runtime.now() + 5))
    hasty.start()
    eventually(lambda: len(turns._open) == 1)
    patient = [threading.Thread(target=turn, args=(place, runtime.now() + 60)) for place in places[1:]]
    for thread in patient:
        thread.start()
    eventually(lambda: len(turns._open) == 4)
    with postgres.connect(database.rpartition("/")[2]) as blocker, blocker.transaction():
        blocker.execute("SELECT 1 FROM leasehold.lock FOR UPDATE")
        first, turns._leader = turns._open[0], None
        first.signal.set()
        hasty.join()
    for thread in patient:
        thread.join()
    assert sum(isinstance(outcome, leasehold.BackendError) for outcome in outcomes) == 1, outcomes
    assert len(outcomes) == 4
    run(backend.close())


def test_caller_that_waits_for_a_connection_of_ours_is_let_go_in_time(proxy: FaultProxy, url: str) -> None:
    runtime = ThreadRuntime()
    backend: Any = find_store(f"{url}&connections=1").open_backend(runtime)
    grant = run(backend.try_acquire(claim_of(runtime)))
    assert isinstance(grant, Grant)
    proxy.black_hole()
    ended: list[BaseException] = []

    def hang() -> None:
        try:
            run(backend.release(grant, runtime.now() + OWN_LIMIT))
        except leasehold.LeaseholdError as error:
            ended.append(error)

    thread = threading.Thread(target=hang)
    thread.start()
    eventually(lambda: not backend._executor.source._idle)
    error = run(fails_in_time(runtime, lambda until: backend.try_acquire(claim_of(runtime), until)))
    assert isinstance(error, leasehold.BackendUnavailable)
    run(backend.close())
    thread.join()
    assert isinstance(ended[0], ClientClosed)


def test_idle_connections_outlive_a_caller_that_had_little_time(database: str, postgres: PostgresServer) -> None:
    """A row that somebody has locked keeps one caller waiting: that says nothing about the other connections."""
    runtime = ThreadRuntime()
    backend: Any = find_store(database).open_backend(runtime)
    assert isinstance(run(backend.try_acquire(claim_of(runtime, "stuck"))), Grant)
    lines = [run(backend._executor.source.take()) for _ in range(3)]
    for line in lines:
        backend._executor.source.give(line)
    with postgres.connect(database.rpartition("/")[2]) as blocker, blocker.transaction():
        blocker.execute("SELECT 1 FROM leasehold.lock FOR UPDATE")
        error = run(fails_in_time(runtime, lambda until: backend.join(claim_of(runtime, "stuck"), until)))
    assert isinstance(error, leasehold.OutcomeUnknown)
    assert sum(line.is_usable() for line in lines) == 2, "only the one whose answer is outstanding is closed"
    run(backend.close())


@pytest.mark.parametrize("kind", ["pool", "engine", "engine with ping"])
@pytest.mark.parametrize("state", ["hangs", "is used up"])
def test_call_over_a_pool_of_the_users_own_ends_in_time(proxy: FaultProxy, url: str, kind: str, state: str) -> None:
    plain = f"{url.partition('?')[0]}?connect_timeout={OWN_LIMIT}"
    pool: Any
    if kind == "pool":
        pool = ConnectionPool(plain, min_size=1, max_size=1, timeout=OWN_LIMIT, open=True)
    else:
        pool = sqlalchemy.create_engine(
            plain.replace("postgresql:", "postgresql+psycopg:"),
            pool_size=1,
            max_overflow=0,
            pool_timeout=OWN_LIMIT,
            pool_pre_ping="ping" in kind,
        )
    runtime = ThreadRuntime()
    backend: Any = adopt(pool, {"answer_timeout": str(OWN_LIMIT)}).open_backend(runtime)
    assert isinstance(run(backend.try_acquire(claim_of(runtime, "first one"))), Grant)
    taken = None
    if state == "hangs":
        proxy.black_hole()
    else:
        taken = pool.getconn() if kind == "pool" else pool.connect()
    run(fails_in_time(runtime, lambda until: backend.try_acquire(claim_of(runtime), until)))
    proxy.heal()
    proxy.cut()
    run(backend.close())
    if taken is not None:
        pool.putconn(taken) if kind == "pool" else taken.close()
    # What came too late for its caller is given back by another thread; once the pool has ended, nobody would close it.
    eventually(
        lambda: "leasehold postgres connect" not in {each.name for each in threading.enumerate()}, "a thread", 60
    )
    pool.close(timeout=1) if kind == "pool" else pool.dispose()


@pytest.mark.parametrize("kind", ["pool", "engine"])
@pytest.mark.parametrize("state", ["hangs", "is used up"])
def test_call_over_an_asyncio_pool_of_the_users_own_ends_in_time(
    proxy: FaultProxy, url: str, kind: str, state: str
) -> None:
    plain = f"{url.partition('?')[0]}?connect_timeout={OWN_LIMIT}"

    async def story() -> None:
        pool: Any
        if kind == "pool":
            pool = AsyncConnectionPool(plain, min_size=1, max_size=1, timeout=OWN_LIMIT, open=False)
            await pool.open()
        else:
            pool = create_async_engine(
                plain.replace("postgresql:", "postgresql+psycopg:"),
                pool_size=1,
                max_overflow=0,
                pool_timeout=OWN_LIMIT,
                pool_pre_ping=True,
            )
        runtime = AsyncioRuntime()
        backend: Any = adopt(pool, {"answer_timeout": str(OWN_LIMIT)}).open_backend(runtime)
        assert isinstance(await backend.try_acquire(claim_of(runtime, "first one")), Grant)
        taken = None
        if state == "hangs":
            proxy.black_hole()
        else:
            taken = await (pool.getconn() if kind == "pool" else pool.connect())
        await fails_in_time(runtime, lambda until: backend.try_acquire(claim_of(runtime), until))
        proxy.heal()
        proxy.cut()
        await backend.close()
        if taken is not None:
            await (pool.putconn(taken) if kind == "pool" else taken.close())
        await (pool.close(timeout=1) if kind == "pool" else pool.dispose())

    asyncio.run(story())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("connected", [True, False])
def test_cancelled_task_is_let_go_at_once(proxy: FaultProxy, url: str, mode: str, connected: bool) -> None:
    async def story() -> None:
        runtime = AsyncioRuntime()
        backend: Any = find_store(f"{url}&mode={mode}").open_backend(runtime)
        if connected:
            assert isinstance(await backend.try_acquire(claim_of(runtime, "first one")), Grant)
        proxy.black_hole()
        task = asyncio.create_task(backend.try_acquire(claim_of(runtime)))
        await asyncio.sleep(0.3)
        before = time.monotonic()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert time.monotonic() - before < BACK
        await backend.close()

    asyncio.run(story())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("connected", [True, False])
def test_calls_that_are_under_way_or_wait_when_the_client_is_closed_end_with_that(
    driver: contract.Driver,
    proxy: FaultProxy,
    url: str,
    mode: str,
    connected: bool,
) -> None:
    runtime = driver.runtime()
    backend: Any = find_store(f"{url}&mode={mode}&connections=1").open_backend(runtime)
    ended: list[BaseException] = []

    async def hang() -> None:
        try:
            await backend.try_acquire(claim_of(runtime))
        except leasehold.LeaseholdError as error:
            ended.append(error)

    async def story() -> None:
        if connected:
            assert isinstance(await backend.try_acquire(claim_of(runtime, "first one")), Grant)
        proxy.black_hole()
        tasks = [runtime.spawn(hang(), f"call {number}") for number in range(3)]
        await runtime.sleep(0.3)
        before = runtime.now()
        await backend.close()
        for task in tasks:
            await task.join()
        assert runtime.now() - before < BACK
        assert [type(error) for error in ended] == [ClientClosed] * 3
        with pytest.raises(ClientClosed):
            await backend.try_acquire(claim_of(runtime))

    driver.run(story())
