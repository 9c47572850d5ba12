"""Writes into etcd itself that are applied only while the lock is held."""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold._backends.etcd import rpc
from leasehold._backends.etcd.wire import load_grpc
from leasehold.fencing.etcd import still_held
from verification.lab.process import wait_until

if TYPE_CHECKING:
    from verification.lab.etcd import EtcdServer


def write(server: EtcdServer, condition: dict[str, Any], value: bytes) -> bool:
    """The user's own transaction, over the JSON gateway."""
    put = {"key": base64.b64encode(b"stock").decode(), "value": base64.b64encode(value).decode()}
    answer = server.ask("/kv/txn", {"compare": [condition], "success": [{"requestPut": put}]})
    return bool(answer.get("succeeded", False))


def test_late_write_is_refused_by_etcd_itself(etcd_server: EtcdServer) -> None:
    with leasehold.connect(etcd_server.url, ttl=60, namespace="guard") as client:
        lease = client.lock("stock").acquire()
        mine = still_held(lease).as_json()
        assert write(etcd_server, mine, b"1") is True
        operator = leasehold.connect(etcd_server.url, namespace="guard")
        assert operator.break_lock("stock", fence=lease.fence, reason="test", now=True)
        later = operator.lock("stock").acquire(timeout=0)
        assert write(etcd_server, still_held(later).as_json(), b"2") is True
        assert write(etcd_server, mine, b"late") is False
        later.release()
        operator.close()
        with suppress(leasehold.LeaseLost):
            assert lease.release() is not True


def test_released_lease_gives_no_condition(etcd_server: EtcdServer) -> None:
    with leasehold.connect(etcd_server.url, namespace="guard") as client:
        lease = client.lock("x").acquire()
        lease.release()
        with pytest.raises(leasehold.LeaseLost):
            still_held(lease)


def test_message_is_what_a_grpc_client_sends(etcd_server: EtcdServer) -> None:
    async def under_the_lock() -> tuple[bool, bool]:
        async with leasehold.connect_async(etcd_server.url, namespace="guard") as client:
            async with client.lock("y").hold() as lease:
                condition = still_held(lease).as_message()
                during = ask(condition)
            return during, ask(condition)

    grpc = load_grpc()
    channel = grpc.insecure_channel(etcd_server.address)

    def ask(condition: bytes) -> bool:
        put = rpc.op_put(rpc.put(b"y", b"v"))
        request = rpc.condition(condition) + rpc.then(put)
        return rpc.read_txn(channel.unary_unary(rpc.Method.TXN)(request, timeout=5)).succeeded

    assert asyncio.run(under_the_lock()) == (True, False)
    channel.close()


def test_lease_of_another_store_is_refused() -> None:
    with leasehold.connect("memory://") as client, client.lock("x").hold() as lease:
        with pytest.raises(leasehold.ConfigurationError, match="no etcd store"):
            still_held(lease)


def test_condition_fails_once_the_key_has_expired(etcd_server: EtcdServer) -> None:
    with leasehold.connect(etcd_server.url, ttl=1, namespace="guard") as client:
        lease = client.lock("z", renew=False).acquire()
        mine = still_held(lease).as_json()
        assert write(etcd_server, mine, b"1") is True
        wait_until(lambda: client.inspect("z") is None, "the key did not expire", 30)
        assert write(etcd_server, mine, b"late") is False
