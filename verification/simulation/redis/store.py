"""The Redis store of one simulated process: the shipped backend, router and listener over the simulated wire.

`Watched` stands in front of the backend and tells who asks for what, and what got no answer; it changes nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from leasehold._backends.redis.backend import RedisBackend
from leasehold._backends.redis.keys import Names
from leasehold._backends.redis.router import Router
from leasehold._backends.redis.topology import OneServer
from leasehold._backends.redis.wire import Node
from leasehold.errors import BackendError, BackendUnavailable, OutcomeUnknown
from leasehold.values import Capability
from verification.simulation.redis.wire import LABEL, SimWire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence
    from typing import TypeVar

    from leasehold._backends.redis.options import Options
    from leasehold.spi import Backend, Place
    from leasehold.values import Claim, Grant, LockState, Loss, Reading, Record, Refusal
    from verification.simulation.network import Link
    from verification.simulation.redis.server import SimRedis
    from verification.simulation.redis.watcher import RedisWatcher

    T = TypeVar("T")

__all__ = ["RedisOverLink", "open_plain"]


def open_plain(server: SimRedis, link: Link, runtime: Any, options: Options, *, shared: bool) -> RedisBackend:
    """The shipped backend over the simulated wire, and nothing in front of it."""
    wire = SimWire(link, runtime, server, shared=shared)
    router = Router(wire, OneServer(Node("simulated")), runtime, LABEL)
    names = Names(options.prefix, compat=options.compat)
    return RedisBackend(router, names, options, runtime, LABEL)


class RedisOverLink:
    """The store as one process sees it."""

    def __init__(
        self,
        server: SimRedis,
        link: Link,
        watcher: RedisWatcher,
        options: Options,
        *,
        shared: bool,
        queueing: bool,
    ) -> None:
        self._server = server
        self._link = link
        self._watcher = watcher
        self._options = options
        self._shared = shared
        self._queueing = queueing

    def open_backend(self, runtime: Any) -> Backend:
        """Connect."""
        backend = open_plain(self._server, self._link, runtime, self._options, shared=self._shared)
        return _Watched(backend, self._link, self._watcher, queueing=self._queueing)


class _Watched:
    """The port, with a word to the watcher before each request and after each failure."""

    def __init__(self, backend: RedisBackend, link: Link, watcher: RedisWatcher, *, queueing: bool) -> None:
        self._backend = backend
        self._link = link
        self._watcher = watcher
        self.label = backend.label
        without = {Capability.PAUSE} | (set() if queueing else {Capability.FIFO, Capability.PUSH})
        self.capabilities = backend.capabilities - without

    async def _told(self, verb: str, subject: Any, answer: Awaitable[T]) -> T:
        process = self._link.process
        process.world.note(process.name, "send", verb)
        self._watcher.model.sent(process, verb, subject)
        try:
            return await answer
        except (BackendUnavailable, OutcomeUnknown) as error:
            self._watcher.model.failed(process, verb, subject)
            process.world.note(process.name, "no answer", verb, type(error).__name__)
            raise

    async def try_acquire(self, claim: Claim, until: float = math.inf, /) -> Grant | Refusal:
        self._watcher.expect(claim, self._link)
        return await self._told("try_acquire", claim, self._backend.try_acquire(claim, until))

    async def join(self, claim: Claim, until: float = math.inf, /) -> Grant | Place | Refusal:
        self._watcher.expect(claim, self._link)
        return await self._told("join", claim, self._backend.join(claim, until))

    async def turn(self, place: Place, until: float = math.inf, /) -> Grant | Place | Refusal:
        return await self._told("turn", place.claim, self._backend.turn(place, until))

    async def renew(self, grants: Sequence[Grant], until: float = math.inf, /) -> Sequence[Grant | Loss | BackendError]:
        return await self._told("renew", tuple(grants), self._backend.renew(grants, until))

    async def release(self, grant: Grant, until: float = math.inf, /) -> bool | Loss:
        return await self._told("release", grant, self._backend.release(grant, until))

    async def withdraw(self, claim: Claim, until: float = math.inf, /, *, doubt: bool = True) -> None:
        await self._told("withdraw", claim, self._backend.withdraw(claim, until, doubt=doubt))

    async def inspect(self, key: str) -> LockState | None:
        return await self._told("inspect", key, self._backend.inspect(key))

    async def list(self, prefix: str) -> Sequence[LockState]:
        return await self._told("list", prefix, self._backend.list(prefix))

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        return await self._told("break_", (key, fence, now), self._backend.break_(key, fence, reason, now=now))

    async def raise_fence(self, key: str, fence: int) -> int:
        return await self._told("raise_fence", (key, fence), self._backend.raise_fence(key, fence))

    async def read(self, key: str, fence: int = 0) -> Reading:
        return await self._told("read", key, self._backend.read(key, fence))

    async def write(self, record: Record) -> bool:
        return await self._told("write", record, self._backend.write(record))

    async def close(self) -> None:
        await self._backend.close()
