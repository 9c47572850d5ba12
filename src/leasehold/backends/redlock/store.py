"""From a URL, or several redis-py clients of the user's own, to a Redlock store. No I/O here."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from leasehold._core.quorum import majority
from leasehold.backends.redis.store import PORT, THEIRS, TLS_OPTIONS, RedisStore
from leasehold.backends.redis.store import adopt as adopt_one
from leasehold.backends.redis.store import open_url as open_one
from leasehold.backends.redis.wire import Node as Address
from leasehold.backends.redlock.backend import RedlockBackend
from leasehold.backends.redlock.calls import Calls
from leasehold.backends.redlock.node import Node
from leasehold.backends.redlock.nodes import Nodes
from leasehold.backends.redlock.options import OF_CLIENTS, OURS, Options
from leasehold.backends.redlock.unsaid import Unsaid
from leasehold.errors import ConfigurationError
from leasehold.store_url import refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leasehold.backends.redis.wire import Dialer
    from leasehold.backends.redlock.node import Lines
    from leasehold.spi import Backend, Runtime, Store
    from leasehold.store_url import StoreURL

__all__ = ["RedlockStore", "adopt", "open_url"]

MOST_NODES = 9

logger = logging.getLogger("leasehold")


class RedlockStore:
    """Several independent servers: how to reach each, and how they behave together."""

    def __init__(self, servers: Sequence[tuple[Dialer, Address]], options: Options, label: str) -> None:
        _check_number([address for _, address in servers], label)
        self.label = label
        self.options = options
        self._servers = servers

    def open_backend(self, runtime: Runtime) -> Backend:
        """Make a backend; each has connections and knowledge of its own."""
        calls = Calls(self.options.max_ttl, len(self._servers))
        nodes = [self._node(dialer, address, runtime) for dialer, address in self._servers]
        return RedlockBackend(Nodes(nodes, calls, runtime, self.label), calls, self.options, runtime)

    def _node(self, dialer: Dialer, address: Address, runtime: Runtime) -> Node:
        unsaid = Unsaid()
        return Node(address, self._lines(dialer, address, runtime, unsaid), unsaid=unsaid)

    def _lines(self, dialer: Dialer, address: Address, runtime: Runtime, unsaid: Unsaid) -> Lines:
        """The connections for this runtime; asyncio is loaded only where it is used."""
        if not runtime.blocking:
            from leasehold.backends.redlock.asyncio_lines import AsyncioLines  # noqa: PLC0415

            return AsyncioLines(dialer, address, self.options.node_timeout)
        from leasehold.backends.redlock.blocking_lines import BlockingLines  # noqa: PLC0415

        return BlockingLines(dialer, address, self.options.node_timeout, unsaid)


def open_url(url: StoreURL) -> Store:
    """`redlock://h1,h2,h3,h4,h5`, or `rediss`-like with `?tls=1`; credentials and database are those of every node."""
    secure = url.options.get("tls", "0").lower() not in ("0", "no", "false")
    url.refuse_options(*OURS, *THEIRS, *(TLS_OPTIONS if secure else ()))
    options = Options.read(url.options)
    theirs = {name: value for name, value in url.options.items() if name not in OURS}
    theirs = {"socket_connect_timeout": "1", "socket_timeout": "1", **theirs}
    servers = []
    for host, port in url.hosts:
        address = Address(host or "localhost", port or PORT)
        one = replace(url, scheme="rediss" if secure else "redis", hosts=((host, port),), options=theirs)
        servers.append((cast("RedisStore", open_one(one)).dialer, address))
    return RedlockStore(servers, options, str(url))


def adopt(clients: Iterable[Any], given: Mapping[str, str]) -> Store:
    """A store over the servers of several redis-py (or valkey-py) clients; only their settings are used."""
    refuse_unknown(given, OF_CLIENTS, "Redlock over clients of your own")
    options = Options.read(given)
    servers = []
    for client in clients:
        store = adopt_one(client, {})
        pool = getattr(client, "connection_pool", None)
        if pool is None or "Sentinel" in pool.connection_class.__name__:
            raise ConfigurationError(
                f"a {type(client).__name__} cannot be a node of Redlock: each node is one server that fails by itself"
            )
        settings = pool.connection_kwargs
        address = Address(settings.get("host", "localhost"), int(settings.get("port", PORT)), settings.get("path", ""))
        servers.append((cast("RedisStore", store).dialer, address))
    return RedlockStore(servers, options, f"redlock://{','.join(str(address) for _, address in servers)}")


def _check_number(addresses: list[Address], label: str) -> None:
    count = len(addresses)
    if not 1 <= count <= MOST_NODES:
        raise ConfigurationError(f"{label}: Redlock takes 1 to {MOST_NODES} nodes, and these are {count}")
    if len(set(addresses)) < count:
        twice = next(str(address) for address in addresses if addresses.count(address) > 1)
        raise ConfigurationError(f"{label}: {twice} is named twice; each node has one vote")
    if count == 1:
        logger.warning("%s: one node is no majority of anything; redis:// does more on one server", label)
    elif count % 2 == 0:
        logger.warning(
            "%s: %d nodes survive the loss of %d, no more than %d nodes do, and need one vote more",
            label, count, count - majority(count), count - 1,
        )  # fmt: skip
