"""Redlock over the same nodes by us and by others, and the barest program that does what ours does.

A peer is imported when it is asked for; one that is not installed is reported, never left out.
"""

from __future__ import annotations

import asyncio
import select
import socket
import time
import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import leasehold
from benchmarks.redis_locks import PATIENCE, TTL
from leasehold.backends.redlock.calls import Calls
from leasehold.values import Claim, Holder, Mode

if TYPE_CHECKING:
    from collections.abc import Callable

    from verification.lab.redlock import RedlockNodes

__all__ = ["KINDS", "OURS", "Bare", "Pairs", "make", "why_missing"]

OURS = "leasehold, five nodes"


class Pairs:
    """Something that takes and gives a lock so many times."""

    def run(self, count: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Let go of connections."""


class Ours(Pairs):
    """leasehold."""

    def __init__(self, url: str) -> None:
        self._client = leasehold.connect(url, ttl=TTL)
        self._lock = self._client.lock("bench")

    def run(self, count: int) -> None:
        lock = self._lock
        for _ in range(count):
            lock.acquire(timeout=PATIENCE).release()

    def close(self) -> None:
        self._client.close()


class OursAsync(Pairs):
    """leasehold on asyncio, one task."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._client = leasehold.connect_async(url, ttl=TTL)
        self._lock = self._client.lock("bench-async")

    def run(self, count: int) -> None:
        self._runner.run(self._pairs(count))

    async def _pairs(self, count: int) -> None:
        for _ in range(count):
            await (await self._lock.acquire(timeout=PATIENCE)).release()

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()


class Bare(Pairs):
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
        self._ask(self._calls.release(self._claim, 1).whole)

    def run(self, count: int) -> None:
        number = 0
        for _ in range(count):
            number = max(number + 2, int(time.time() * 1_000_000))
            self._ask(self._calls.vote(self._claim, number).short)
            self._ask(self._calls.release(self._claim, number).short)

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


class RedlockPy(Pairs):
    """redlock-py: one node after the other."""

    def __init__(self, ports: list[int]) -> None:
        clients = [import_module("redis").Redis(port=port) for port in ports]
        self._redlock = import_module("redlock").Redlock(clients)

    def run(self, count: int) -> None:
        for _ in range(count):
            held = self._redlock.lock("redlock-py", TTL * 1000)
            if not held:
                raise RuntimeError("redlock-py was not granted")
            self._redlock.unlock(held)


class Pottery(Pairs):
    """pottery: a thread for each node."""

    def __init__(self, ports: list[int]) -> None:
        masters = {import_module("redis").Redis(port=port) for port in ports}
        self._lock = import_module("pottery").Redlock(key="pottery", masters=masters, auto_release_time=TTL)

    def run(self, count: int) -> None:
        for _ in range(count):
            if not self._lock.acquire():
                raise RuntimeError("pottery was not granted")
            self._lock.release()


class Aioredlock(Pairs):
    """aioredlock, one task."""

    def __init__(self, ports: list[int]) -> None:
        self._runner = asyncio.Runner()
        self._ports = ports
        self._manager: Any = None

    def run(self, count: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it uses has been old for years
            self._runner.run(self._pairs(count))

    async def _pairs(self, count: int) -> None:
        if self._manager is None:
            nodes = [f"redis://127.0.0.1:{port}/0" for port in self._ports]
            self._manager = import_module("aioredlock").Aioredlock(nodes, internal_lock_timeout=TTL)
        for _ in range(count):
            await self._manager.unlock(await self._manager.lock("aioredlock"))

    def close(self) -> None:
        if self._manager is not None:
            self._runner.run(self._manager.destroy())
        self._runner.close()


KINDS: dict[str, tuple[str, Callable[[list[int]], Pairs]]] = {
    "redlock-py, five nodes": ("redlock", RedlockPy),
    "pottery, five nodes": ("pottery", Pottery),
    "aioredlock, five nodes": ("aioredlock", Aioredlock),
}


def make(kind: str, ports: list[int]) -> Pairs:
    """The peer of this name."""
    return KINDS[kind][1](ports)


def why_missing(kind: str) -> str:
    """Why it cannot run here; empty if it can."""
    return "" if find_spec(KINDS[kind][0]) else "not installed"
