"""The Redis store of one simulated process: the shipped backend, router and listener over the simulated wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold._backends.redis.backend import RedisBackend
from leasehold._backends.redis.keys import Names
from leasehold._backends.redis.router import Router
from leasehold._backends.redis.topology import OneServer
from leasehold._backends.redis.wire import Node
from verification.simulation.redis.wire import LABEL, SimWire
from verification.simulation.watched import Watched

if TYPE_CHECKING:
    from leasehold._backends.redis.options import Options
    from leasehold.spi import Backend
    from verification.simulation.network import Link
    from verification.simulation.redis.server import SimRedis
    from verification.simulation.redis.watcher import RedisWatcher

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
        return Watched(backend, self._link, self._watcher, queueing=self._queueing)
