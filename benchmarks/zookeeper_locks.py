"""Ours, kazoo's own lock and tooz on one ZooKeeper server, and the smallest programs that do the same there.

The floor makes an ephemeral node with a number, lists its siblings with a question sent right behind, and deletes the
node: what every fair lock on ZooKeeper has to do. It is written with kazoo's public calls, and once more over the
connection that leasehold uses, which handles answers on the thread that reads them.
"""

from __future__ import annotations

import shutil
import threading
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import library
from benchmarks.harness import Role
from benchmarks.library import TTL, Kind, Library, Lock, Ours, Peer
from verification.lab.zookeeper import JAR, ZooKeeperServer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.library import Address

__all__ = ["KAZOO", "OURS", "ZOOKEEPER", "KazooFloor", "OwnFloor"]

OURS = "leasehold"
KAZOO = "kazoo Lock"


def why_no_server() -> str:
    """Why there can be no server here; empty if there can."""
    if shutil.which("java") is None or not Path(JAR).exists():
        return "no ZooKeeper (Debian and Ubuntu: apt install zookeeper default-jre-headless)"
    return "" if find_spec("kazoo") else "kazoo is not installed"


class Connections(library.Connections):
    """A client of ours and one of kazoo."""

    def __init__(self, port: int) -> None:
        super().__init__(f"zk://127.0.0.1:{port}")
        self.port = port

    @cached_property
    def theirs(self) -> Any:
        """Kazoo's."""
        client = _kazoo_client(self.port)
        self.stack.callback(client.close)
        self.stack.callback(client.stop)
        return client


def _kazoo_client(port: int) -> Any:
    client = import_module("kazoo.client").KazooClient(f"127.0.0.1:{port}", timeout=TTL * 1.5)
    client.start()
    return client


def _kazoo(connections: Connections, name: str) -> Lock:
    return Peer(lambda: connections.theirs.Lock(f"/kazoo/{name}", "bench"))


def _tooz(connections: Connections, name: str) -> Lock:
    url = f"kazoo://127.0.0.1:{connections.port}?timeout={TTL}"
    coordinator = import_module("tooz.coordination").get_coordinator(url, b"bench")
    coordinator.start()
    lock = coordinator.get_lock(name.encode())
    return Peer(lambda: lock, coordinator.stop)


class KazooFloor(Lock):
    """Creation with the listing behind it, and deletion, with kazoo's public calls."""

    def __init__(self, port: int) -> None:
        self._client = _kazoo_client(port)
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


class OwnFloor(Lock):
    """The same over leasehold's connection."""

    def __init__(self, port: int) -> None:
        wire = import_module("leasehold._backends.zookeeper.wire")
        options = import_module("leasehold._backends.zookeeper.options").Options
        self._calls = import_module("kazoo.protocol.serialization")
        self._acl = import_module("kazoo.security").OPEN_ACL_UNSAFE
        self._reply = wire.Reply
        ready = threading.Event()
        where = options(hosts=(("127.0.0.1", port),), root="/floor", label="floor")
        self._wire = wire.KazooWire(where, TTL * 1.5, lambda _: ready.set(), lambda _: None)
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


def _sync(_: Any, addresses: Sequence[Address]) -> tuple[str, Callable[[], object], Callable[[], object]]:
    connections = Connections(addresses[0][1])
    client = connections.theirs
    return "sync", lambda: client.sync("/"), connections.close


ZOOKEEPER = Library(
    "ZooKeeper",
    {
        OURS: Kind(lambda connections, name: Ours(connections.ours, name), ("kazoo",), Role.OURS),
        KAZOO: Kind(_kazoo, ("kazoo",)),
        "tooz": Kind(_tooz, ("tooz",)),
    },
    why_no_server,
    serve=ZooKeeperServer,
    connect=lambda _, addresses: Connections(addresses[0][1]),
    round_trip=_sync,
)
