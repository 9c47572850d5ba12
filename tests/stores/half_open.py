"""What has to work, on any store, when the other side of a connection is gone and nobody told us.

What we send vanishes, but a new connection would work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.stores.support import opened

if TYPE_CHECKING:
    from leasehold._face.client import AsyncClient
    from leasehold.testing import contract
    from verification.lab.proxy import FaultProxy

__all__ = ["gets_its_turn", "keeps_its_lease"]

NAME = "half open"


async def keeps_its_lease(driver: contract.Driver, proxy: FaultProxy, through: str, direct: str, *, ttl: float) -> None:
    """A holder renews over a new connection in time. `through` the proxy, `direct` to the store: their URLs."""
    async with opened(driver, through) as client, opened(driver, direct) as witness:
        lease = await client.lock(NAME, ttl=ttl).acquire()
        proxy.half_open()
        assert not await lease.lost.wait(ttl + 1)
        state = await witness.inspect(NAME)
        assert state is not None
        assert [holding.fence for holding in state.holdings] == [lease.fence]
        assert await lease.release()


async def gets_its_turn(
    driver: contract.Driver, proxy: FaultProxy, through: str, direct: str, *, ttl: float, within: float
) -> None:
    """A waiter hears nothing of the release, and gets the lock all the same; nothing is left of it."""
    runtime = driver.runtime()
    async with opened(driver, through) as client, opened(driver, direct) as other:
        first = await other.lock(NAME, ttl=60).acquire()
        got: list[int] = []
        waiter = runtime.spawn(_take(client, ttl, got), "waiter")
        while (state := await other.inspect(NAME)) is None or not state.waiting:
            await runtime.sleep(0.01)
        proxy.half_open()
        assert await first.release()
        assert await waiter.join(runtime.now() + within)
        assert got
        assert got[0] > first.fence
        assert await other.inspect(NAME) is None


async def _take(client: AsyncClient, ttl: float, got: list[int]) -> None:
    lease = await client.lock(NAME, ttl=ttl).acquire(timeout=100)
    got.append(lease.fence)
    assert await lease.release()
