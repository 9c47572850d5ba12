"""Optional ports: a store that shows locks need not be able to change them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from leasehold._backends.memory import MemoryStore
from leasehold._blocking import Client
from leasehold._face.client import AsyncClient
from leasehold._runtimes.threads import ThreadRuntime
from leasehold.errors import UnsupportedCapability
from leasehold.spi import Conditioning, Inspecting, Operating
from leasehold.values import Capability

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.spi import Backend, Runtime
    from leasehold.values import Claim, Grant, LockState, Loss, Refusal


class Showing:
    """The memory store without what operators may change."""

    capabilities = frozenset({Capability.EXCLUSIVE, Capability.FENCING, Capability.INSPECT})
    label = "showing:"

    def __init__(self, runtime: Runtime) -> None:
        self._inner = MemoryStore().open_backend(runtime)

    async def try_acquire(self, claim: Claim, until: float = math.inf, /) -> Grant | Refusal:
        return await self._inner.try_acquire(claim, until)

    async def renew(self, grants: Sequence[Grant], until: float = math.inf, /) -> Sequence[Grant | Loss]:
        return await self._inner.renew(grants, until)  # type: ignore[return-value]

    async def release(self, grant: Grant, until: float = math.inf, /) -> bool | Loss:
        return await self._inner.release(grant, until)

    async def withdraw(self, claim: Claim, until: float = math.inf, /, *, doubt: bool = True) -> None:
        await self._inner.withdraw(claim, until, doubt=doubt)

    async def inspect(self, key: str) -> LockState | None:
        assert isinstance(self._inner, Inspecting)
        return await self._inner.inspect(key)

    async def list(self, prefix: str) -> Sequence[LockState]:
        assert isinstance(self._inner, Inspecting)
        return await self._inner.list(prefix)

    async def close(self) -> None:
        await self._inner.close()


class ShowingStore:
    def open_backend(self, runtime: Runtime) -> Backend:
        return Showing(runtime)


def test_a_store_may_show_locks_without_letting_operators_change_them() -> None:
    with Client._of(AsyncClient(ShowingStore(), ThreadRuntime())) as client, client.lock("x").hold() as lease:
        state = client.inspect("x")
        assert state is not None
        assert [held.fence for held in state.holdings] == [lease.fence]
        assert len(client.locks()) == 1
        refused = pytest.raises(UnsupportedCapability, match="cannot break locks or raise fences")
        with refused:
            client.break_lock("x", fence=lease.fence, reason="stuck")
        with refused:
            client.raise_fence("x", 5, reason="restored")


def test_a_refused_fence_does_not_keep_such_a_store_from_granting() -> None:
    with Client._of(AsyncClient(ShowingStore(), ThreadRuntime())) as client:
        lock = client.lock("x")
        with lock.hold() as lease:
            lease._twin._opened.note_fence("leasehold:x", 100)
        with lock.hold() as lease:
            assert lease.fence > 0


def test_ports_are_distinguished_by_their_verbs() -> None:
    memory = MemoryStore().open_backend(ThreadRuntime())
    assert isinstance(memory, Inspecting)
    assert isinstance(memory, Operating)
    assert not isinstance(memory, Conditioning)
    showing = Showing(ThreadRuntime())
    assert isinstance(showing, Inspecting)
    assert not isinstance(showing, Operating)
