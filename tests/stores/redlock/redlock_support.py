"""What the Redlock fault tests share: nodes of their own, a look at what each node has, a client process."""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from leasehold._backends.redlock.calls import LOCK
from leasehold._core.names import DEFAULT_NAMESPACE, key_for
from leasehold._urls import find_store
from leasehold.errors import BackendUnavailable
from verification.lab.proxy import FaultProxy
from verification.lab.redlock import RedlockNodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold._face.client import AsyncClient
    from leasehold.testing import contract
    from verification.lab.redis import RedisServer

__all__ = [
    "SHORT",
    "connected",
    "drop_lock",
    "has_lock",
    "held_on",
    "highest_number",
    "lock_key",
    "opened_store",
    "proxied",
    "tell",
]

SHORT = 1.0  # a max_ttl with which a node that forgot sits out for 5 s


async def connected(driver: contract.Driver, client: AsyncClient) -> None:
    """Wait until this client is connected to every node: a busy machine may first have only a majority."""
    end = time.monotonic() + 60
    while True:
        lease = await client.lock("warm").acquire(timeout=60)
        await lease.release()
        nodes = client._opened.backend._nodes.all  # type: ignore[union-attr]  # it is open
        if all(node.is_up and node.wire.is_ready and not node.opening for node in nodes):
            return
        assert time.monotonic() < end, "some node is never connected"
        await driver.breathe()


async def opened_store(runtime: Any, url: str) -> Any:
    """A store that is connected to every node."""
    store: Any = find_store(url).open_backend(runtime)
    end = time.monotonic() + 60
    while True:
        with suppress(BackendUnavailable):
            await store.inspect("leasehold:warm")
            if all(node.is_up and node.wire.is_ready and not node.opening for node in store._nodes.all):
                return store
        assert time.monotonic() < end, "some node is never connected"
        await runtime.sleep(0.005)


def lock_key(name: str) -> str:
    return LOCK + key_for(DEFAULT_NAMESPACE, name)


def has_lock(server: RedisServer, name: str = "name") -> int | None:
    """The number under which this node has the lock; None if it is free there."""
    owner, number, ends = server.ask("HMGET", lock_key(name), "o", "f", "e")
    seconds, microseconds = server.ask("TIME")
    now = int(seconds) * 1000 + int(microseconds) // 1000
    return int(number) if owner is not None and int(ends) > now else None


def highest_number(server: RedisServer, name: str = "name") -> int:
    """No vote or repair below this is accepted by this node; a release raises it above its own number."""
    return int(server.ask("HGET", lock_key(name), "c") or 0)


def held_on(nodes: RedlockNodes, name: str = "name") -> int:
    """On how many of the running nodes the lock is held."""
    return sum(has_lock(server, name) is not None for server in nodes.servers if server.is_running)


def drop_lock(server: RedisServer, name: str = "name") -> None:
    """Let this node lose the lock, and nothing else."""
    server.ask("HDEL", lock_key(name), "o")


def tell(server: RedisServer, payload: bytes) -> bytes:
    """Send bytes to a node as they are; the first bytes of its answer."""
    with socket.create_connection(server.address) as connection:
        connection.sendall(payload)
        return connection.recv(65536)


@contextmanager
def proxied(nodes: RedlockNodes, number: int) -> Iterator[tuple[list[FaultProxy], str]]:
    """Proxies in front of the first nodes, and the URL through them."""
    proxies = [FaultProxy(server.address) for server in nodes.servers[:number]]
    for proxy in proxies:
        proxy.start()
    try:
        addresses = [proxy.address for proxy in proxies] + [server.address for server in nodes.servers[number:]]
        yield proxies, nodes.url(addresses=addresses)
    finally:
        for proxy in proxies:
            proxy.stop()
