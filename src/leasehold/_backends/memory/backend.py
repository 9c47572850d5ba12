"""A client's connection to a memory store: the verbs of the ports, each one call of the store."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leasehold.findings import Finding, Level
from leasehold.values import Capability

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._backends.memory.store import MemoryStore
    from leasehold.spi import Place, Runtime
    from leasehold.values import Claim, Grant, Holder, LockState, Loss, Reading, Record, Refusal

__all__ = ["MemoryBackend"]


class MemoryBackend:
    """A client's connection to a memory store."""

    capabilities = frozenset(Capability) - {Capability.SESSION}
    is_private = True

    def __init__(self, store: MemoryStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self.label = store.label

    def exists(self) -> bool:
        return True

    async def try_acquire(self, claim: Claim, _until: float = math.inf, /) -> Grant | Refusal:
        return self._store.try_acquire(claim)

    async def join(self, claim: Claim, _until: float = math.inf, /) -> Grant | Place | Refusal:
        return self._store.join(claim, self._runtime.signal())

    async def turn(self, place: Place, _until: float = math.inf, /) -> Grant | Place | Refusal:
        return self._store.turn(place)

    async def renew(self, grants: Sequence[Grant], _until: float = math.inf, /) -> Sequence[Grant | Loss]:
        return self._store.renew(grants)

    async def release(self, grant: Grant, _until: float = math.inf, /) -> bool | Loss:
        return self._store.release(grant)

    async def withdraw(self, claim: Claim, _until: float = math.inf, /, *, doubt: bool = True) -> None:
        self._store.withdraw(claim, doubt=doubt)

    async def inspect(self, key: str) -> LockState | None:
        return self._store.inspect(key)

    async def list(self, prefix: str) -> Sequence[LockState]:
        return self._store.list(prefix)

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        return self._store.break_(key, fence, reason, now=now)

    async def raise_fence(self, key: str, fence: int) -> int:
        return self._store.raise_fence(key, fence)

    async def pause(self, key: str, by: Holder, seconds: float) -> None:
        self._store.pause(key, by, seconds)

    async def resume(self, key: str) -> bool:
        return self._store.resume(key)

    async def read(self, key: str, fence: int = 0) -> Reading:
        return self._store.read(key, fence)

    async def write(self, record: Record) -> bool:
        return self._store.write(record)

    async def examine(self) -> Sequence[Finding]:
        return [
            Finding(
                "scope",
                Level.PROBLEM,
                "a memory store lives inside one process",
                "two programs would each lock a store of their own, and both would run; `run` and `once` refuse it",
                "use local: or sqlite:////path between processes, a server between hosts",
            )
        ]

    async def close(self) -> None:
        """Nothing is open."""
