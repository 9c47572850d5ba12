"""Ours and other people's locks on etcd, and the floor: two bare transactions."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from benchmarks import library
from benchmarks.harness import Role
from benchmarks.library import TTL, AsyncLock, Kind, Library, Lock, Ours, OursAsync, Peer
from leasehold._backends.etcd import rpc
from leasehold._backends.etcd.wire import CHANNEL_OPTIONS, load_grpc
from verification.lab.etcd import EtcdServer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.library import Address

__all__ = ["ASYNC_FLOOR", "ETCD", "ETCD3GW", "FLOOR", "OURS", "OURS_ASYNC", "Bare", "BareAsync"]

OURS, OURS_ASYNC, ETCD3GW = "leasehold", "leasehold, asyncio", "etcd3gw"
FLOOR, ASYNC_FLOOR = "two bare transactions", "two bare transactions, asyncio"


def why_no_server() -> str:
    """Why there can be no server; empty if there can."""
    if find_spec("grpc") is None:
        return "grpcio is not installed"
    try:
        EtcdServer().remove()
    except RuntimeError as error:
        return str(error)
    return ""


class Bare(Lock):
    """Two transactions over raw gRPC: put a key if it is not there, delete it if it is ours."""

    def __init__(self, address: str, key: bytes = b"bench/bare") -> None:
        self._channel = load_grpc().insecure_channel(address, CHANNEL_OPTIONS)
        self._txn = self._channel.unary_unary(rpc.Method.TXN)
        self._range = self._channel.unary_unary(rpc.Method.RANGE)
        self._key = key
        grant = self._channel.unary_unary(rpc.Method.LEASE_GRANT)
        self._lease = rpc.read_lease(grant(rpc.lease_grant(0, 3600), timeout=10)).lease

    def pairs(self, count: int) -> None:
        take = _put_if_absent(self._key, self._lease)
        for _ in range(count):
            taken = rpc.read_txn(self._txn(take, timeout=3))
            _check(taken, rpc.read_txn(self._txn(_delete_if_ours(self._key, taken), timeout=3)))

    def read(self) -> None:
        """One round trip."""
        self._range(rpc.read(self._key), timeout=3)

    def close(self) -> None:
        self._channel.close()


class BareAsync(AsyncLock):
    """The same over gRPC for asyncio, which has a dearer way to wait for an answer."""

    def __init__(self, address: str, key: bytes = b"bench/bare-async") -> None:
        super().__init__()
        self._key = key
        self.runner.run(self._connect(address))

    async def _connect(self, address: str) -> None:
        self._channel = import_module("grpc.aio").insecure_channel(address, options=CHANNEL_OPTIONS)
        self._txn = self._channel.unary_unary(rpc.Method.TXN)
        grant = self._channel.unary_unary(rpc.Method.LEASE_GRANT)
        lease = rpc.read_lease(await grant(rpc.lease_grant(0, 3600), timeout=10)).lease
        self._take = _put_if_absent(self._key, lease)

    async def pair(self) -> None:
        taken = rpc.read_txn(await self._txn(self._take, timeout=3))
        _check(taken, rpc.read_txn(await self._txn(_delete_if_ours(self._key, taken), timeout=3)))

    async def leave(self) -> None:
        await self._channel.close()


def _put_if_absent(key: bytes, lease: int) -> bytes:
    return rpc.condition(rpc.is_absent(key)) + rpc.then(rpc.op_put(rpc.put(key, b"x" * 60, lease)))


def _delete_if_ours(key: bytes, taken: rpc.TxnResponse) -> bytes:
    ours = rpc.condition(rpc.created_at(key, taken.header.revision))
    return ours + rpc.then(rpc.op_delete(rpc.delete(key)))


def _check(taken: rpc.TxnResponse, given: rpc.TxnResponse) -> None:
    if not (taken.succeeded and given.succeeded):
        raise RuntimeError("etcd refused a bare transaction; is another client using its key?")


class Connections(library.Connections):
    """A client of ours and one of etcd3gw."""

    def __init__(self, address: Address) -> None:
        self.host, self.port = address
        super().__init__(f"etcd://{self.host}:{self.port}")

    @cached_property
    def theirs(self) -> Any:
        """etcd3gw's, which keeps no connection."""
        return import_module("etcd3gw").client(host=self.host, port=self.port)


def _tooz(connections: Connections, name: str) -> Lock:
    coordination: Any = import_module("tooz.coordination")
    coordinator = coordination.get_coordinator(f"etcd3+http://{connections.host}:{connections.port}", b"bench")
    coordinator.start()
    lock = coordinator.get_lock(name.encode())
    return Peer(lambda: lock, coordinator.stop)


class Aetcd(AsyncLock):
    """aetcd, one task."""

    def __init__(self, connections: Connections, name: str) -> None:
        super().__init__()
        self._name = name.encode()
        self._client = self.runner.run(self._connect(connections))

    async def _connect(self, connections: Connections) -> Any:
        client: Any = import_module("aetcd").Client(host=connections.host, port=connections.port)
        await client.connect()
        return client

    async def pair(self) -> None:
        lock = self._client.lock(self._name, ttl=TTL)
        if not await lock.acquire():
            raise RuntimeError("aetcd did not get its lock")
        await lock.release()

    async def leave(self) -> None:
        await self._client.close()


def _read(_: Any, addresses: Sequence[Address]) -> tuple[str, Callable[[], object], Callable[[], object]]:
    bare = Bare(f"{addresses[0][0]}:{addresses[0][1]}", b"bench/far")
    return "a read", bare.read, bare.close


ETCD = Library(
    "etcd",
    {
        OURS: Kind(lambda connections, name: Ours(connections.ours, name), ("grpc",), Role.OURS),
        OURS_ASYNC: Kind(lambda connections, name: OursAsync(connections.url, name), ("grpc",), Role.OURS),
        ETCD3GW: Kind(lambda connections, name: Peer(lambda: connections.theirs.lock(name, ttl=TTL)), ("etcd3gw",)),
        "tooz (etcd3gw)": Kind(_tooz, ("tooz", "etcd3gw")),
        "aetcd, asyncio": Kind(Aetcd, ("aetcd",)),
    },
    why_no_server,
    serve=lambda: EtcdServer(election_ms=1000),  # it does not wait for its disk: what is measured is the software
    connect=lambda _, addresses: Connections(addresses[0]),
    round_trip=_read,
    addresses=lambda server: [(server.host, server.port)],
)
