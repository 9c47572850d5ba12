"""From a URL, or several redis-py clients of the user's own, to a Redlock store. No I/O here."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, cast

from leasehold._backends.redis.options import PORT, TLS
from leasehold._backends.redis.store import RedisStore, database_of, new_dialer, require_driver
from leasehold._backends.redis.store import adopt as adopt_one
from leasehold._backends.redis.wire import Node as Address
from leasehold._backends.redlock.backend import RedlockBackend
from leasehold._backends.redlock.calls import Calls
from leasehold._backends.redlock.node import Node
from leasehold._backends.redlock.nodes import Nodes
from leasehold._backends.redlock.options import OPTIONS, RENAMED, Options
from leasehold._backends.redlock.undelivered import Undelivered
from leasehold._core.quorum import majority
from leasehold._words import kind_of
from leasehold.errors import ConfigurationError
from leasehold.kit.options import read_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leasehold._backends.redis.wire import Dialer
    from leasehold._backends.redlock.wire import NodeWire
    from leasehold.spi import Backend, Runtime, Store
    from leasehold.store_url import StoreURL

__all__ = ["RedlockStore", "adopt", "open_url"]

MOST_NODES = 9
CONNECT_TIMEOUT = 1.0  # less than for a single server: the others make the majority meanwhile

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
        undelivered = Undelivered()
        return Node(address, self._wire(dialer, address, runtime, undelivered), undelivered=undelivered)

    def _wire(self, dialer: Dialer, address: Address, runtime: Runtime, undelivered: Undelivered) -> NodeWire:
        """The connections for this runtime; asyncio is loaded only where it is used."""
        if not runtime.blocking:
            from leasehold._backends.redlock.asyncio_wire import AsyncioWire  # noqa: PLC0415

            return AsyncioWire(dialer, address, self.options.answer_timeout)
        from leasehold._backends.redlock.blocking_wire import BlockingWire  # noqa: PLC0415

        return BlockingWire(dialer, address, self.options.answer_timeout, undelivered)


def open_url(url: StoreURL) -> Store:
    """`redlock://h1,h2,h3,h4,h5`, with TLS by `?tls=yes`; credentials and database are those of every node."""
    require_driver()
    values = read_options(url.options, OPTIONS, f"{url.scheme}:", RENAMED)
    dialer = new_dialer(
        url,
        values,
        secure=values[TLS],
        secure_url="add tls=yes",
        db=database_of(url, values),
        connect_timeout=CONNECT_TIMEOUT,
    )
    servers = [(dialer, Address(host or "localhost", port or PORT)) for host, port in url.hosts]
    return RedlockStore(servers, Options.of(values), str(url))


def adopt(clients: Iterable[Any], given: Mapping[str, str]) -> Store:
    """A store over the servers of several redis-py (or valkey-py) clients; only their settings are used."""
    options = Options.read(given, "Redlock over clients of your own")
    servers = []
    for client in clients:
        store = adopt_one(client, {})
        pool = getattr(client, "connection_pool", None)
        if pool is None or "Sentinel" in pool.connection_class.__name__:
            raise ConfigurationError(
                f"{kind_of(client)} cannot be a node of Redlock: each node is one server that fails by itself"
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
        raise ConfigurationError(f"{label}: {twice} is named twice; each node has one vote, so name it once")
    if count == 1:
        logger.warning("%s: one node is no majority of anything; redis:// does more on one server", label)
    elif count % 2 == 0:
        logger.warning(
            "%s: %d nodes survive the loss of %d, no more than %d nodes do, and need one vote more; "
            "take one out, or add one",
            label, count, count - majority(count), count - 1,
        )  # fmt: skip
