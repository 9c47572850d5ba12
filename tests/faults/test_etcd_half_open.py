"""A connection to etcd whose other side is gone, and nobody told us: what we send vanishes, a new one would work.

gRPC notices by itself after 15 seconds, which is too late for the ttls used here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold.backends.etcd import messages
from leasehold.backends.etcd.messages import Method
from tests.faults.support import opened
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from leasehold.testing import contract
    from verification.lab.etcd import EtcdServer


@pytest.fixture
def proxy(etcd_server: EtcdServer) -> Iterator[FaultProxy]:
    with FaultProxy(("127.0.0.1", etcd_server.port)) as proxy:
        yield proxy


def url(proxy: FaultProxy) -> str:
    return f"etcd://127.0.0.1:{proxy.port}"


def test_half_open_connection_does_not_cost_the_lease(
    driver: contract.Driver, proxy: FaultProxy, etcd_server: EtcdServer
) -> None:
    async def body() -> None:
        async with opened(driver, url(proxy)) as client, opened(driver, etcd_server.url) as witness:
            lease = await client.lock("half open", ttl=6).acquire()
            proxy.half_open()
            assert not await lease.lost.wait(7)
            state = await witness.inspect("half open")
            assert state is not None
            assert [holding.fence for holding in state.holdings] == [lease.fence]
            assert await lease.release()

    driver.run(body())


def test_waiter_on_a_half_open_connection_still_gets_its_turn(
    driver: contract.Driver, proxy: FaultProxy, etcd_server: EtcdServer
) -> None:
    async def body() -> None:
        async with opened(driver, url(proxy)) as client, opened(driver, etcd_server.url) as other:
            runtime = driver.runtime()
            first = await other.lock("half open", ttl=60).acquire()
            waiter = runtime.spawn(take(client), "waiter")
            while (state := await other.inspect("half open")) is None or not state.waiting:
                await runtime.sleep(0.01)
            proxy.half_open()
            assert await first.release()
            assert await waiter.join(runtime.now() + 12)  # before gRPC would have noticed

    async def take(client: leasehold.AsyncClient) -> None:
        lease = await client.lock("half open", ttl=6).acquire(timeout=100)
        assert await lease.release()

    driver.run(body())


def test_a_slow_server_keeps_the_calls_that_are_under_way(proxy: FaultProxy) -> None:
    """Whoever did not wait so long must not take the channel away from those who do."""

    async def history() -> None:
        async with leasehold.connect_async(url(proxy), ttl=60) as client:
            await (await client.lock("warm").acquire()).release()
            await asyncio.sleep(1.1)  # then a channel may be given up on
            proxy.delay(1.5)
            slow = asyncio.create_task(client.lock("half open").acquire(timeout=30))
            await asyncio.sleep(0.1)
            backend: Any = client._current().backend
            with pytest.raises(leasehold.BackendUnavailable):
                await backend._connection.call(Method.RANGE, messages.read(b"x"), 0.3, reads=True)
            lease = await slow
            proxy.delay(0.0)
            assert await lease.release()

    asyncio.run(history())
