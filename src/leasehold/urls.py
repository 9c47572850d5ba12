"""From a URL, or a client of the user's own, to a store. Stores are imported only here, when their URL is opened."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, cast

from leasehold.errors import ConfigurationError
from leasehold.store_url import StoreURL, spelled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leasehold.spi import Store

__all__ = ["find_store"]

URL_VARIABLE = "LEASEHOLD_URL"
ENTRY_POINTS = "leasehold.backends"

# Each module has `open_url(url: StoreURL) -> Store`, which does no I/O.
SCHEMES = {
    "etcd": "leasehold.backends.etcd",
    "etcds": "leasehold.backends.etcd",
    "local": "leasehold.backends.sqlite",
    "mariadb": "leasehold.backends.mysql",
    "mariadb+pymysql": "leasehold.backends.mysql",
    "memory": "leasehold.backends.memory",
    "memory+unix": "leasehold.testing.shared",
    "mysql": "leasehold.backends.mysql",
    "mysql+pymysql": "leasehold.backends.mysql",
    "nats": "leasehold.backends.nats",
    "nats+tls": "leasehold.backends.nats",
    "postgres": "leasehold.backends.postgres",
    "postgresql": "leasehold.backends.postgres",
    "postgresql+asyncpg": "leasehold.backends.postgres",
    "postgresql+psycopg": "leasehold.backends.postgres",
    "redis": "leasehold.backends.redis",
    "redis+cluster": "leasehold.backends.redis",
    "redis+sentinel": "leasehold.backends.redis",
    "rediss": "leasehold.backends.redis",
    "rediss+cluster": "leasehold.backends.redis",
    "rediss+sentinel": "leasehold.backends.redis",
    "redlock": "leasehold.backends.redlock",
    "sqlite": "leasehold.backends.sqlite",
    "unix": "leasehold.backends.redis",
    "valkey": "leasehold.backends.redis",
    "valkey+cluster": "leasehold.backends.redis",
    "valkey+sentinel": "leasehold.backends.redis",
    "valkeys": "leasehold.backends.redis",
    "valkeys+cluster": "leasehold.backends.redis",
    "valkeys+sentinel": "leasehold.backends.redis",
    "zk": "leasehold.backends.zookeeper",
    "zks": "leasehold.backends.zookeeper",
}

# Clients of the user's own, by the package their class comes from. Each module has `adopt(client, options) -> Store`.
ADOPTERS: dict[str, str] = {
    "asyncpg": "leasehold.backends.postgres",
    "kazoo": "leasehold.backends.zookeeper",
    "psycopg": "leasehold.backends.postgres",
    "psycopg_pool": "leasehold.backends.postgres",
    "sqlalchemy": "leasehold.backends.postgres",
    "redis": "leasehold.backends.redis",
    "valkey": "leasehold.backends.redis",
}


def find_store(target: object, options: Mapping[str, object] | None = None) -> Store:
    """The store for a URL, an object with `open_backend`, a driver's own client, or, for None, the environment.

    `options` are for a client of the user's own, which has no URL to say them in.
    """
    if target is None:
        target = os.environ.get(URL_VARIABLE)
        if not target:
            raise ConfigurationError(
                f"no store was named: pass a URL to connect() or set {URL_VARIABLE}. There is no silent default: fifty "
                "servers that each locked a private file would run the job fifty times. Say local: for the embedded "
                "SQLite file of this user on this host, sqlite:////path for one that the whole host shares, or "
                "memory://NAME for a store inside this process"
            )
    if options and (isinstance(target, str) or hasattr(target, "open_backend")):
        raise ConfigurationError(
            "options= goes with a client of your own; a URL says them itself: redis://host?acks=1&strict=1"
        )
    if isinstance(target, str):
        url = StoreURL.parse(target)
        return _opener(url.scheme)(url)
    if hasattr(target, "open_backend"):
        return cast("Store", target)
    words = spelled(options or {})
    if isinstance(target, (list, tuple)):  # a client for each node
        return cast("Store", import_module(SCHEMES["redlock"]).adopt(target, words))
    for ancestor in type(target).__mro__:
        module = ADOPTERS.get(ancestor.__module__.partition(".")[0])
        if module is not None:
            return cast("Store", import_module(module).adopt(target, words))
    raise ConfigurationError(f"cannot lock with a {type(target).__name__}: pass a store URL or a store")


def _opener(scheme: str) -> Callable[[StoreURL], Store]:
    if scheme in SCHEMES:
        return cast("Callable[[StoreURL], Store]", import_module(SCHEMES[scheme]).open_url)
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow, and only needed for stores of third parties

    for point in entry_points(group=ENTRY_POINTS, name=scheme):
        return cast("Callable[[StoreURL], Store]", point.load())
    known = ", ".join(sorted(name for name in SCHEMES if "+" not in name or name.startswith("redis+")))
    raise ConfigurationError(f"no store has the scheme {scheme!r}; known: {known}")
