"""A connection to etcd whose other side is gone without an error: what we send vanishes, a new one would work.

gRPC notices by itself after 15 seconds, which is too late for the ttls used here.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold._backends.etcd import rpc
from leasehold._backends.etcd.connection import until
from leasehold._backends.etcd.rpc import Method
from tests.stores.half_open import gets_its_turn, keeps_its_lease
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
    driver.run(keeps_its_lease(driver, proxy, url(proxy), etcd_server.url, ttl=6))


def test_waiter_on_a_half_open_connection_still_gets_its_turn(
    driver: contract.Driver, proxy: FaultProxy, etcd_server: EtcdServer
) -> None:
    driver.run(gets_its_turn(driver, proxy, url(proxy), etcd_server.url, ttl=6, within=12))


def test_a_slow_server_keeps_the_calls_that_are_under_way(proxy: FaultProxy) -> None:
    """A call with little time must not replace the channel of calls that wait longer."""

    async def history() -> None:
        async with leasehold.connect_async(url(proxy), ttl=60) as client:
            await (await client.lock("warm").acquire()).release()
            await asyncio.sleep(1.1)  # then a channel may be given up on
            proxy.delay(1.5)
            slow = asyncio.create_task(client.lock("half open").acquire(timeout=30))
            await asyncio.sleep(0.1)
            backend: Any = client._current().backend
            with pytest.raises(leasehold.BackendUnavailable), until(math.inf):  # as a verb does
                await backend._connection.call(Method.RANGE, rpc.read(b"x"), 0.3, reads=True)
            lease = await slow
            proxy.delay(0.0)
            assert await lease.release()

    asyncio.run(history())
