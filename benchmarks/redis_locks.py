"""The same two verbs over ours and over other people's Redis locks, so that one loop can drive each of them.

Each object is for one thread. Times are the same for all: a lock that nobody renews is free after 30 seconds. A peer is
imported when it is asked for; one that is not installed is reported, never left out.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import leasehold

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "KINDS",
    "MOST_CONNECTIONS",
    "OURS",
    "PATIENCE",
    "PYTHON_REDIS_LOCK",
    "REDIS_PY",
    "TTL",
    "Connections",
    "RedisLock",
    "make",
    "why_missing",
]

TTL = 30
PATIENCE = 60.0
MOST_CONNECTIONS = 5_000  # redis-py's own limit is 100, and it raises an error beyond that
OURS = "leasehold"
REDIS_PY = "redis-py Lock"
PYTHON_REDIS_LOCK = "python-redis-lock"


class RedisLock(Protocol):
    """Something to take, and to give back."""

    def take(self) -> object:
        """Wait for it."""

    def give(self) -> object:
        """Give it back."""


class Connections:
    """What the locks of one process share: a client of ours, a client of redis-py with its pool."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._ours: leasehold.Client | None = None
        self._theirs: Any = None

    @property
    def ours(self) -> leasehold.Client:
        """Our client."""
        if self._ours is None:
            self._ours = leasehold.connect(f"redis://127.0.0.1:{self.port}", ttl=TTL)
        return self._ours

    @property
    def theirs(self) -> Any:
        """redis-py's, which uses hiredis by itself where that is installed."""
        if self._theirs is None:
            self._theirs = import_module("redis").Redis(port=self.port, max_connections=MOST_CONNECTIONS)
        return self._theirs

    def close(self) -> None:
        """Close both."""
        if self._ours is not None:
            self._ours.close()
        if self._theirs is not None:
            self._theirs.close()


class Ours:
    """leasehold."""

    def __init__(self, connections: Connections, name: str) -> None:
        self._lock = connections.ours.lock(name)
        self._lease: leasehold.Lease | None = None

    def take(self) -> None:
        self._lease = self._lock.acquire(timeout=PATIENCE)

    def give(self) -> None:
        if self._lease is not None:
            self._lease.release()


class Peer:
    """A lock of another library with the two methods that most of them have."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._release = lock.release

    def take(self) -> None:
        if not self._lock.acquire():
            raise RuntimeError(f"{type(self._lock).__name__} was not granted")

    def give(self) -> None:
        self._release()


class RedlockPy:
    """redlock-py, which keeps no state in its object. It gives up after 0.6 s unless told otherwise."""

    def __init__(self, connections: Connections, name: str) -> None:
        self._redlock = import_module("redlock").Redlock([connections.theirs])
        self._name = name
        self._held: Any = None

    def take(self) -> None:
        self._held = self._redlock.lock(self._name, TTL * 1000)
        if not self._held:
            raise RuntimeError("redlock-py was not granted")

    def give(self) -> None:
        self._redlock.unlock(self._held)


def _redis_py(connections: Connections, name: str) -> RedisLock:
    return Peer(connections.theirs.lock(name, timeout=TTL))


def _python_redis_lock(connections: Connections, name: str) -> RedisLock:
    return Peer(import_module("redis_lock").Lock(connections.theirs, name, expire=TTL))


def _python_redis_lock_renewed(connections: Connections, name: str) -> RedisLock:
    return Peer(import_module("redis_lock").Lock(connections.theirs, name, expire=TTL, auto_renewal=True))


def _pottery(connections: Connections, name: str) -> RedisLock:
    return Peer(import_module("pottery").Redlock(key=name, masters={connections.theirs}, auto_release_time=TTL))


def _tooz(connections: Connections, name: str) -> RedisLock:
    coordination = import_module("tooz.coordination")
    url = f"redis://127.0.0.1:{connections.port}?timeout={TTL}"
    coordinator = coordination.get_coordinator(url, b"bench")
    coordinator.start()
    return Peer(coordinator.get_lock(name.encode()))


def _portalocker(connections: Connections, name: str) -> RedisLock:
    lock = import_module("portalocker").RedisLock(name, connections.theirs, timeout=PATIENCE, interrupt_on_lost=False)
    return Peer(lock)


KINDS: dict[str, tuple[str, Callable[[Connections, str], RedisLock]]] = {
    OURS: ("hiredis", Ours),
    REDIS_PY: ("redis", _redis_py),
    "redlock-py, one node": ("redlock", RedlockPy),
    "tooz": ("tooz", _tooz),
    PYTHON_REDIS_LOCK: ("redis_lock", _python_redis_lock),
    "python-redis-lock, auto_renewal": ("redis_lock", _python_redis_lock_renewed),
    "pottery, one node": ("pottery", _pottery),
    "portalocker RedisLock": ("portalocker", _portalocker),
}


def make(kind: str, connections: Connections, name: str) -> RedisLock:
    """A lock of this kind and name."""
    return KINDS[kind][1](connections, name)


def why_missing(kind: str) -> str:
    """Why this kind cannot run here; empty if it can."""
    return "" if find_spec(KINDS[kind][0]) else "not installed"
