"""Ours, kazoo's own lock and tooz on one ZooKeeper server, and the smallest programs that do the same there.

The floor makes an ephemeral node with a number, lists its siblings with a question sent right behind, and deletes the
node: what every fair lock on ZooKeeper has to do. It is written with kazoo's public calls, and once more over the
connection that leasehold uses, which handles answers on the thread that reads them.
"""

from __future__ import annotations

import shutil
import threading
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import leasehold
from verification.lab.zookeeper import JAR, ZooKeeperServer

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["KAZOO", "KINDS", "OURS", "Connections", "KazooFloor", "OwnFloor", "make", "start", "why_missing"]

TTL = 30
PATIENCE = 60.0
OURS = "leasehold"
KAZOO = "kazoo Lock"


def why_no_server() -> str:
    """Why there can be no server here; empty if there can."""
    if shutil.which("java") is None or not Path(JAR).exists():
        return "no ZooKeeper (Debian and Ubuntu: apt install zookeeper default-jre-headless)"
    return "" if find_spec("kazoo") else "kazoo is not installed"


def start() -> ZooKeeperServer:
    """A server with the usual bounds of sessions, which writes to memory only."""
    server = ZooKeeperServer()
    server.start()
    return server


class ZooKeeperLock(Protocol):
    """Something to take, and to give back."""

    def take(self) -> object:
        """Wait for it."""

    def give(self) -> object:
        """Give it back."""


class Connections:
    """What the locks of one process share: a client of ours, and one of kazoo."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._ours: leasehold.Client | None = None
        self._theirs: Any = None
        self._coordinators: list[Any] = []

    @property
    def ours(self) -> leasehold.Client:
        """Our client."""
        if self._ours is None:
            self._ours = leasehold.connect(f"zk://127.0.0.1:{self.port}", ttl=TTL)
        return self._ours

    @property
    def theirs(self) -> Any:
        """Kazoo's."""
        if self._theirs is None:
            self._theirs = import_module("kazoo.client").KazooClient(f"127.0.0.1:{self.port}", timeout=TTL * 1.5)
            self._theirs.start()
        return self._theirs

    def coordinator(self) -> Any:
        """Tooz's."""
        url = f"kazoo://127.0.0.1:{self.port}?timeout={TTL}"
        coordinator = import_module("tooz.coordination").get_coordinator(url, b"bench")
        coordinator.start()
        self._coordinators.append(coordinator)
        return coordinator

    def close(self) -> None:
        """Close all."""
        if self._ours is not None:
            self._ours.close()
        if self._theirs is not None:
            self._theirs.stop()
            self._theirs.close()
        for coordinator in self._coordinators:
            coordinator.stop()


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
    """A lock of another library."""

    def __init__(self, make_lock: Callable[[], Any]) -> None:
        self._make = make_lock
        self._lock: Any = None

    def take(self) -> None:
        self._lock = self._make()
        if not self._lock.acquire():
            raise RuntimeError(f"{type(self._lock).__name__} was not granted")

    def give(self) -> None:
        self._lock.release()


def _kazoo(connections: Connections, name: str) -> ZooKeeperLock:
    return Peer(lambda: connections.theirs.Lock(f"/kazoo/{name}", "bench"))


def _tooz(connections: Connections, name: str) -> ZooKeeperLock:
    lock = connections.coordinator().get_lock(name.encode())
    return Peer(lambda: lock)


KINDS: dict[str, tuple[str, Callable[[Connections, str], ZooKeeperLock]]] = {
    OURS: ("kazoo", Ours),
    KAZOO: ("kazoo", _kazoo),
    "tooz": ("tooz", _tooz),
}


def make(kind: str, connections: Connections, name: str) -> ZooKeeperLock:
    """A lock of this kind and name."""
    return KINDS[kind][1](connections, name)


def why_missing(kind: str) -> str:
    """Why this kind cannot run here; empty if it can."""
    return "" if find_spec(KINDS[kind][0]) else "not installed"


class KazooFloor:
    """Creation with the listing behind it, and deletion, with kazoo's public calls."""

    def __init__(self, port: int) -> None:
        self._client = import_module("kazoo.client").KazooClient(f"127.0.0.1:{port}", timeout=TTL * 1.5)
        self._client.start()
        self._client.ensure_path("/floor")

    def pairs(self, count: int) -> None:
        client = self._client
        for _ in range(count):
            made = client.create_async("/floor/x-", b"", ephemeral=True, sequence=True, include_data=True)
            listed = client.get_children_async("/floor")
            path, _stat = made.get()
            listed.get()
            client.delete(path)

    def close(self) -> None:
        self._client.stop()
        self._client.close()


class OwnFloor:
    """The same over leasehold's connection."""

    def __init__(self, port: int) -> None:
        wire = import_module("leasehold.backends.zookeeper.wire")
        options = import_module("leasehold.backends.zookeeper.options").Options
        self._calls = import_module("kazoo.protocol.serialization")
        self._acl = import_module("kazoo.security").OPEN_ACL_UNSAFE
        self._reply = wire.Reply
        ready = threading.Event()
        where = options(hosts=(("127.0.0.1", port),), root="/floor", label="floor")
        self._wire = wire.Wire(where, TTL * 1.5, lambda _: ready.set(), lambda _: None)
        self._wire.start()
        ready.wait(30)
        self._ask(self._calls.Create2("/own-floor", b"", self._acl, 0))

    def _send(self, request: Any) -> tuple[Any, threading.Event]:
        done = threading.Event()
        reply = self._reply(0.0, done, None, lambda _: None)
        self._wire.send(request, reply)
        return reply, done

    def _ask(self, request: Any) -> Any:
        reply, done = self._send(request)
        done.wait(30)
        return reply.value

    def pairs(self, count: int) -> None:
        calls = self._calls
        for _ in range(count):
            made, _done = self._send(calls.Create2("/own-floor/x-", b"", self._acl, 3))
            self._ask(calls.GetChildren("/own-floor", None))
            self._ask(calls.Delete(made.value[0], -1))

    def close(self) -> None:
        self._wire.close(notify=True)
