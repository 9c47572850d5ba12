"""Ours and other people's locks on one Redis server. Each object is for one thread."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmarks import library
from benchmarks.harness import Role
from benchmarks.library import PATIENCE, TTL, Kind, Library, Lock, Ours, Peer
from benchmarks.redis_server import BareClient
from benchmarks.redis_server import why_missing as why_no_server
from verification.lab.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "KINDS",
    "MOST_CONNECTIONS",
    "OURS",
    "PATIENCE",
    "PING",
    "PYTHON_REDIS_LOCK",
    "REDIS",
    "REDIS_PY",
    "TTL",
    "Connections",
    "RedisLock",
    "make",
    "ping",
    "why_missing",
]

MOST_CONNECTIONS = 5_000  # redis-py's own limit is 100, and it raises an error beyond that
OURS = "leasehold"
REDIS_PY = "redis-py Lock"
PYTHON_REDIS_LOCK = "python-redis-lock"
PING = b"*1\r\n$4\r\nPING\r\n"
RedisLock = Lock


class Connections(library.Connections):
    """A client of ours, and a client of redis-py with its pool."""

    def __init__(self, port: int) -> None:
        super().__init__(f"redis://127.0.0.1:{port}")
        self.port = port

    @cached_property
    def theirs(self) -> Any:
        """redis-py's, which uses hiredis by itself where that is installed."""
        client = import_module("redis").Redis(port=self.port, max_connections=MOST_CONNECTIONS)
        self.stack.callback(client.close)
        return client


class RedlockPy(Lock):
    """redlock-py, which keeps no state in its object. It gives up after 0.6 s unless configured otherwise."""

    def __init__(self, clients: Sequence[Any], name: str) -> None:
        self._redlock = import_module("redlock").Redlock(clients)
        self._name = name
        self._held: Any = None

    def take(self) -> None:
        self._held = self._redlock.lock(self._name, TTL * 1000)
        if not self._held:
            raise RuntimeError("redlock-py was not granted")

    def give(self) -> None:
        self._redlock.unlock(self._held)


def ping(_: Any, addresses: Sequence[library.Address]) -> tuple[str, Callable[[], object], Callable[[], object]]:
    """One empty command, and how to close its connection."""
    client = BareClient(addresses[0][1])
    return "PING", lambda: client.ask(PING), client.close


def _one(lock: Any) -> Lock:
    """A lock that is used again and again."""
    return Peer(lambda: lock)


def _redis_py(connections: Connections, name: str) -> Lock:
    return _one(connections.theirs.lock(name, timeout=TTL))


def _python_redis_lock(connections: Connections, name: str) -> Lock:
    return _one(import_module("redis_lock").Lock(connections.theirs, name, expire=TTL))


def _python_redis_lock_renewed(connections: Connections, name: str) -> Lock:
    return _one(import_module("redis_lock").Lock(connections.theirs, name, expire=TTL, auto_renewal=True))


def _pottery(connections: Connections, name: str) -> Lock:
    return _one(import_module("pottery").Redlock(key=name, masters={connections.theirs}, auto_release_time=TTL))


def _tooz(connections: Connections, name: str) -> Lock:
    coordination = import_module("tooz.coordination")
    url = f"redis://127.0.0.1:{connections.port}?timeout={TTL}"
    coordinator = coordination.get_coordinator(url, b"bench")
    coordinator.start()
    return _one(coordinator.get_lock(name.encode()))


def _portalocker(connections: Connections, name: str) -> Lock:
    lock = import_module("portalocker").RedisLock(name, connections.theirs, timeout=PATIENCE, interrupt_on_lost=False)
    return _one(lock)


KINDS: dict[str, Kind] = {
    OURS: Kind(lambda connections, name: Ours(connections.ours, name), ("hiredis",), Role.OURS),
    REDIS_PY: Kind(_redis_py, ("redis",)),
    "redlock-py, one node": Kind(lambda connections, name: RedlockPy([connections.theirs], name), ("redlock",)),
    "tooz": Kind(_tooz, ("tooz",)),
    PYTHON_REDIS_LOCK: Kind(_python_redis_lock, ("redis_lock",)),
    "python-redis-lock, auto_renewal": Kind(_python_redis_lock_renewed, ("redis_lock",)),
    "pottery, one node": Kind(_pottery, ("pottery",)),
    "portalocker RedisLock": Kind(_portalocker, ("portalocker",)),
}
REDIS = Library(
    "Redis",
    KINDS,
    why_no_server,
    serve=lambda: RedisServer("benchmark"),
    connect=lambda _, addresses: Connections(addresses[0][1]),
    round_trip=ping,
)
make, why_missing = REDIS.make, REDIS.why_missing
