"""PostgreSQL behind a network that loses requests and answers: unknown is never read as no, nothing is left behind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from tests.stores.support import opened
from verification.lab.postgres import postgres_url
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from leasehold._face.client import AsyncClient
    from leasehold.testing import contract
    from verification.lab.postgres import PostgresServer

MODES = ["rows", "session"]


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[FaultProxy]:
    """Between the clients of this test and the server."""
    with FaultProxy(("127.0.0.1", postgres.port)) as proxy:
        yield proxy


@pytest.fixture
def witness(database: str) -> Iterator[leasehold.Client]:
    """A client that goes straight to the server; the tables exist."""
    with leasehold.connect(database, ttl=30) as client:
        client.lock("first").acquire().release()
        yield client


def through(proxy: FaultProxy, database: str, mode: str) -> str:
    name = database.rpartition("/")[2]
    return f"{postgres_url(proxy.port, name, 'postgres')}?answer_timeout=0.4&connect_timeout=2&mode={mode}"


def ordered(proxy: FaultProxy) -> None:
    """The proxy knows of its orders: they are handed to its thread."""
    proxy._run(asyncio.sleep(0))


def tell(driver: contract.Driver, url: str, story: Any, **options: Any) -> None:
    async def play() -> None:
        async with opened(driver, url, **{"ttl": 30, **options}) as client:
            await story(client)

    coroutine: Coroutine[Any, Any, None] = play()
    driver.run(coroutine)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("then", ["cut", "silence"])
def test_grant_whose_answer_was_lost_is_recognised(
    driver: contract.Driver, proxy: FaultProxy, database: str, witness: leasehold.Client, then: str, mode: str
) -> None:
    async def story(client: AsyncClient) -> None:
        await (await client.lock("other").acquire()).release()
        proxy.swallow(b"acquire_5", then=then)
        ordered(proxy)
        lease = await client.lock("job").acquire(timeout=20)
        proxy.wait_done()
        state = witness.inspect("job")
        assert state is not None
        assert [holding.fence for holding in state.holdings] == [lease.fence]
        assert await lease.release() is True
        assert witness.inspect("job") is None

    tell(driver, through(proxy, database, mode), story)


@pytest.mark.parametrize("mode", MODES)
def test_request_that_arrives_after_its_caller_gave_up_takes_nothing(
    driver: contract.Driver, proxy: FaultProxy, database: str, witness: leasehold.Client, mode: str
) -> None:
    async def story(client: AsyncClient) -> None:
        await (await client.lock("other").acquire()).release()
        proxy.keep_back(b"acquire_5", then="silence")
        ordered(proxy)
        lease = await client.lock("job").acquire(timeout=20)  # by another connection, with the same claim
        proxy.wait_done()
        assert await lease.release() is True
        proxy.deliver()
        late = "the late copy of the request must not take the lock for nobody"
        for _ in range(20):
            assert witness.inspect("job") is None, late
            await client.locks()

    tell(driver, through(proxy, database, mode), story)


@pytest.mark.parametrize("mode", MODES)
def test_release_whose_answer_was_lost_has_released(
    driver: contract.Driver, proxy: FaultProxy, database: str, witness: leasehold.Client, mode: str
) -> None:
    async def story(client: AsyncClient) -> None:
        lease = await client.lock("job").acquire()
        proxy.swallow(b"release_5")
        ordered(proxy)
        assert await lease.release() is True
        proxy.wait_done()
        assert witness.inspect("job") is None

    tell(driver, through(proxy, database, mode), story)


def test_lost_renewals_do_not_cost_the_lease_while_time_is_left(
    driver: contract.Driver, proxy: FaultProxy, database: str, witness: leasehold.Client
) -> None:
    async def story(client: AsyncClient) -> None:
        lease = await client.lock("job").acquire()
        proxy.swallow(b"renew_5", count=2)
        ordered(proxy)
        for _ in range(60):
            await client._runtime.sleep(0.1)
        proxy.wait_done(2)
        lease.check()
        assert witness.lock("job").try_acquire() is None
        assert await lease.release() is True

    tell(driver, through(proxy, database, "rows"), story, ttl=3)


def test_connection_that_died_in_silence_is_replaced(
    driver: contract.Driver, proxy: FaultProxy, database: str, witness: leasehold.Client
) -> None:
    async def story(client: AsyncClient) -> None:
        lease = await client.lock("job").acquire()
        proxy.half_open()
        await lease.renew() if not lease.lost.is_set() else None
        assert await lease.release() is True

    async def with_patience(client: AsyncClient) -> None:
        try:
            await story(client)
        except leasehold.OutcomeUnknown:  # said so, within the answer timeout; the next call has a new connection
            await (await client.lock("job 2").acquire(timeout=10)).release()

    tell(driver, through(proxy, database, "rows"), with_patience)
    assert witness.lock("job 2").try_acquire() is not None


def test_waiter_that_can_hear_nothing_any_more_gets_its_turn(
    driver: contract.Driver, proxy: FaultProxy, database: str, witness: leasehold.Client
) -> None:
    held = witness.lock("job").acquire()

    async def story(client: AsyncClient) -> None:
        async def wait() -> None:
            got.append(await client.lock("job").acquire(timeout=60))

        got: list[leasehold.AsyncLease] = []
        task = client._runtime.spawn(wait(), "waiter")
        while True:
            state = witness.inspect("job")
            if state is not None and state.waiting:
                break
            await client._runtime.sleep(0.01)
        await client._runtime.sleep(0.5)  # it listens by now
        proxy.half_open()
        held.release()
        await task.join()
        assert got[0].fence > held.fence
        await got[0].release()

    tell(driver, through(proxy, database, "rows"), story)


@pytest.mark.parametrize("mode", MODES)
def test_black_hole_is_left_within_the_answer_timeout(
    driver: contract.Driver, proxy: FaultProxy, database: str, witness: leasehold.Client, mode: str
) -> None:
    async def story(client: AsyncClient) -> None:
        await (await client.lock("job").acquire()).release()
        proxy.black_hole()
        before = client._runtime.now()
        with pytest.raises(leasehold.BackendError):
            await client.lock("job").try_acquire()
        assert client._runtime.now() - before < 30
        proxy.heal()
        proxy.cut()
        await (await client.lock("job").acquire(timeout=20)).release()

    tell(driver, through(proxy, database, mode), story)
