"""The same verbs over ours and over other people's locks on etcd, and the floor: two bare transactions.

A peer is imported when it is asked for; one that is not installed is reported, never left out.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

import leasehold
from leasehold.backends.etcd import rpc_requests, rpc_responses
from leasehold.backends.etcd.wire import CHANNEL_OPTIONS, load_grpc
from verification.lab.etcd import EtcdServer

__all__ = [
    "AETCD",
    "ETCD3GW",
    "KINDS",
    "OURS",
    "OURS_ASYNC",
    "TOOZ",
    "Bare",
    "Lock",
    "make",
    "start",
    "why_missing",
    "why_no_server",
]

OURS, OURS_ASYNC = "leasehold", "leasehold, asyncio"
ETCD3GW, TOOZ, AETCD = "etcd3gw", "tooz (etcd3gw)", "aetcd, asyncio"
_PACKAGES = {ETCD3GW: "etcd3gw", TOOZ: "tooz", AETCD: "aetcd"}
TTL = 30
LEASE = 4_711


class Lock(Protocol):
    """Something to take and to give back, some number of times."""

    def pairs(self, count: int) -> None: ...

    def close(self) -> None: ...


def why_no_server() -> str:
    """Why there can be no server; empty if there can."""
    if find_spec("grpc") is None:
        return "grpcio is not installed"
    try:
        EtcdServer().remove()
    except RuntimeError as error:
        return str(error)
    return ""


def start() -> EtcdServer:
    """One server that does not wait for its disk: what is measured is the software."""
    server = EtcdServer(election_ms=1000)
    server.start()
    return server


class Bare:
    """Two transactions over raw gRPC: put a key if it is not there, delete it if it is ours."""

    def __init__(self, address: str, key: bytes = b"bench/bare") -> None:
        self._channel = load_grpc().insecure_channel(address, CHANNEL_OPTIONS)
        self._txn = self._channel.unary_unary(rpc_requests.Method.TXN)
        self._range = self._channel.unary_unary(rpc_requests.Method.RANGE)
        self._key = key
        grant = self._channel.unary_unary(rpc_requests.Method.LEASE_GRANT)
        self._lease = rpc_responses.read_lease(grant(rpc_requests.lease_grant(0, 3600), timeout=10)).lease

    def pairs(self, count: int) -> None:
        key, value = self._key, b"x" * 60
        take = rpc_requests.condition(rpc_requests.is_absent(key)) + rpc_requests.then(
            rpc_requests.op_put(rpc_requests.put(key, value, self._lease))
        )
        for _ in range(count):
            taken = rpc_responses.read_txn(self._txn(take, timeout=3))
            ours = rpc_requests.condition(rpc_requests.created_at(key, taken.header.revision))
            given = rpc_responses.read_txn(
                self._txn(ours + rpc_requests.then(rpc_requests.op_delete(rpc_requests.delete(key))), timeout=3)
            )
            if not (taken.succeeded and given.succeeded):
                raise RuntimeError("etcd did not do what was asked")

    def read(self) -> None:
        """One round trip."""
        self._range(rpc_requests.read(self._key), timeout=3)

    def close(self) -> None:
        self._channel.close()


class _Ours:
    def __init__(self, host: str, port: int, name: str) -> None:
        self._client = leasehold.connect(f"etcd://{host}:{port}", ttl=TTL)
        self._lock = self._client.lock(name)

    def pairs(self, count: int) -> None:
        for _ in range(count):
            self._lock.acquire().release()

    def close(self) -> None:
        self._client.close()


class _OursAsync:
    def __init__(self, host: str, port: int, name: str) -> None:
        self._runner = asyncio.Runner()
        self._client = leasehold.connect_async(f"etcd://{host}:{port}", ttl=TTL)
        self._lock = self._client.lock(name)

    def pairs(self, count: int) -> None:
        self._runner.run(self._pairs(count))

    async def _pairs(self, count: int) -> None:
        for _ in range(count):
            await (await self._lock.acquire()).release()

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()


class _Etcd3gw:
    def __init__(self, host: str, port: int, name: str) -> None:
        self._client: Any = import_module("etcd3gw").client(host=host, port=port)
        self._name = name

    def pairs(self, count: int) -> None:
        for _ in range(count):
            lock = self._client.lock(self._name, ttl=TTL)
            if not lock.acquire():
                raise RuntimeError("etcd3gw did not get its lock")
            lock.release()

    def close(self) -> None:
        """It has nothing to close."""


class _Tooz:
    def __init__(self, host: str, port: int, name: str) -> None:
        coordination: Any = import_module("tooz.coordination")
        self._coordinator = coordination.get_coordinator(f"etcd3+http://{host}:{port}", b"bench")
        self._coordinator.start()
        self._lock = self._coordinator.get_lock(name.encode())

    def pairs(self, count: int) -> None:
        for _ in range(count):
            self._lock.acquire()
            self._lock.release()

    def close(self) -> None:
        self._coordinator.stop()


class _Aetcd:
    def __init__(self, host: str, port: int, name: str) -> None:
        self._runner = asyncio.Runner()
        self._name = name.encode()
        self._client = self._runner.run(self._connect(host, port))

    async def _connect(self, host: str, port: int) -> Any:
        client: Any = import_module("aetcd").Client(host=host, port=port)
        await client.connect()
        return client

    def pairs(self, count: int) -> None:
        self._runner.run(self._pairs(count))

    async def _pairs(self, count: int) -> None:
        for _ in range(count):
            lock = self._client.lock(self._name, ttl=TTL)
            if not await lock.acquire():
                raise RuntimeError("aetcd did not get its lock")
            await lock.release()

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()


KINDS: dict[str, Any] = {
    OURS: _Ours,
    OURS_ASYNC: _OursAsync,
    ETCD3GW: _Etcd3gw,
    TOOZ: _Tooz,
    AETCD: _Aetcd,
}


def make(kind: str, host: str, port: int, name: str) -> Lock:
    """A lock of this kind."""
    lock: Lock = KINDS[kind](host, port, name)
    return lock


def why_missing(kind: str) -> str:
    """Why this kind cannot run here; empty if it can."""
    package = _PACKAGES.get(kind)
    if package is None:
        return ""
    needed = [package, "etcd3gw"] if kind == TOOZ else [package]
    return "" if all(find_spec(each) is not None for each in needed) else "not installed"
