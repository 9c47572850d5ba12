"""Redlock over the same nodes by us and by others, and the barest program that does what ours does."""

from __future__ import annotations

import select
import socket
import time
import warnings
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmarks import library
from benchmarks.harness import Role
from benchmarks.library import TTL, AsyncLock, Kind, Library, Lock, Ours, OursAsync, Peer
from benchmarks.redis_locks import RedlockPy, ping
from benchmarks.redis_server import why_missing as why_no_server
from leasehold._backends.redlock.calls import Calls
from leasehold.values import Claim, Holder, Mode
from verification.lab.redlock import RedlockNodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.library import Address

__all__ = ["OURS", "REDLOCK", "REDLOCK_PY", "Bare", "Connections"]

OURS = "leasehold, five nodes"
REDLOCK_PY = "redlock-py, five nodes"


class Connections(library.Connections):
    """A client of ours, and a client of redis-py for each node."""

    def __init__(self, nodes: RedlockNodes, addresses: Sequence[Address]) -> None:
        super().__init__(nodes.url(addresses))
        self.ports = [port for _, port in addresses]

    @cached_property
    def theirs(self) -> list[Any]:
        """redis-py's, one for each node."""
        return [import_module("redis").Redis(port=port) for port in self.ports]


class Bare(Lock):
    """A socket and a parser for each node and our scripts: send to all, wait for all, nothing around them."""

    def __init__(self, nodes: RedlockNodes) -> None:
        hiredis = import_module("hiredis")
        self._sockets = [socket.create_connection(server.address) for server in nodes.servers]
        self._parsers = {}
        self._poll = select.poll()
        for each in self._sockets:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._parsers[each.fileno()] = (each, hiredis.Reader())
            self._poll.register(each, select.POLLIN)
        self._calls = Calls(nodes.max_ttl, len(nodes.servers))
        self._claim = Claim("leasehold:bare", "b" * 32, TTL, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))
        self._ask(self._calls.vote(self._claim, 1).whole)
        self._ask(self._calls.release(self._claim, 1, 0.0).whole)

    def pairs(self, count: int) -> None:
        number = 0
        for _ in range(count):
            number = max(number + 2, int(time.time() * 1_000_000))
            self._ask(self._calls.vote(self._claim, number).short)
            self._ask(self._calls.release(self._claim, number, 0.0).short)

    def _ask(self, payload: bytes) -> None:
        for each in self._sockets:
            each.sendall(payload)
        left = len(self._sockets)
        while left:
            for descriptor, _ in self._poll.poll():
                connection, parser = self._parsers[descriptor]
                parser.feed(connection.recv(4096))
                while parser.gets() is not False:
                    left -= 1

    def close(self) -> None:
        for each in self._sockets:
            each.close()


class Aioredlock(AsyncLock):
    """aioredlock, one task."""

    def __init__(self, ports: Sequence[int], name: str) -> None:
        super().__init__()
        self._ports = ports
        self._name = name
        self._manager: Any = None

    def pairs(self, count: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it uses has been old for years
            super().pairs(count)

    async def pair(self) -> None:
        if self._manager is None:
            nodes = [f"redis://127.0.0.1:{port}/0" for port in self._ports]
            self._manager = import_module("aioredlock").Aioredlock(nodes, internal_lock_timeout=TTL)
        await self._manager.unlock(await self._manager.lock(self._name))

    async def leave(self) -> None:
        if self._manager is not None:
            await self._manager.destroy()


def _pottery(connections: Connections, name: str) -> Lock:
    """A thread for each node."""
    lock = import_module("pottery").Redlock(key=name, masters=set(connections.theirs), auto_release_time=TTL)
    return Peer(lambda: lock)


REDLOCK = Library(
    "Redlock, five nodes",
    {
        OURS: Kind(lambda connections, name: Ours(connections.ours, name), ("hiredis",), Role.OURS),
        f"{OURS}, asyncio": Kind(lambda connections, name: OursAsync(connections.url, name), ("hiredis",), Role.OURS),
        REDLOCK_PY: Kind(lambda connections, name: RedlockPy(connections.theirs, name), ("redlock",)),
        "pottery, five nodes": Kind(_pottery, ("pottery",)),
        "aioredlock, five nodes": Kind(lambda connections, name: Aioredlock(connections.ports, name), ("aioredlock",)),
    },
    why_no_server,
    serve=lambda: RedlockNodes(5, max_ttl=300, answer_timeout=0.5),
    connect=Connections,
    round_trip=ping,
    addresses=lambda nodes: [server.address for server in nodes.servers],
)
