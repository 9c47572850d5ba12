"""From a URL, or a client of the user's own, to a store. Stores are imported only here, when their URL is opened."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, cast

from leasehold._words import kind_of
from leasehold.errors import ConfigurationError
from leasehold.store_url import StoreURL, spelled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leasehold.spi import Store

__all__ = ["find_namespace", "find_store"]

URL_VARIABLE = "LEASEHOLD_URL"
FILE_VARIABLE = "LEASEHOLD_URL_FILE"  # a file that holds the URL, for those with a password
NAMESPACE_VARIABLE = "LEASEHOLD_NAMESPACE"
LONGEST_URL = 65_536  # bytes; a larger file is not one that holds a URL
ENTRY_POINTS = "leasehold.backends"

# Each module has `open_url(url: StoreURL) -> Store`, which does no I/O.
SCHEMES = {
    "etcd": "leasehold._backends.etcd",
    "etcds": "leasehold._backends.etcd",
    "local": "leasehold._backends.sqlite",
    "mariadb": "leasehold._backends.mysql",
    "mariadb+pymysql": "leasehold._backends.mysql",
    "memory": "leasehold._backends.memory",
    "memory+unix": "leasehold.testing.shared",
    "mysql": "leasehold._backends.mysql",
    "mysql+pymysql": "leasehold._backends.mysql",
    "nats": "leasehold._backends.nats",
    "nats+tls": "leasehold._backends.nats",
    "postgres": "leasehold._backends.postgres",
    "postgresql": "leasehold._backends.postgres",
    "postgresql+asyncpg": "leasehold._backends.postgres",
    "postgresql+psycopg": "leasehold._backends.postgres",
    "redis": "leasehold._backends.redis",
    "redis+cluster": "leasehold._backends.redis",
    "redis+sentinel": "leasehold._backends.redis",
    "rediss": "leasehold._backends.redis",
    "rediss+cluster": "leasehold._backends.redis",
    "rediss+sentinel": "leasehold._backends.redis",
    "redlock": "leasehold._backends.redlock",
    "sqlite": "leasehold._backends.sqlite",
    "unix": "leasehold._backends.redis",
    "valkey": "leasehold._backends.redis",
    "valkey+cluster": "leasehold._backends.redis",
    "valkey+sentinel": "leasehold._backends.redis",
    "valkeys": "leasehold._backends.redis",
    "valkeys+cluster": "leasehold._backends.redis",
    "valkeys+sentinel": "leasehold._backends.redis",
    "zk": "leasehold._backends.zookeeper",
    "zks": "leasehold._backends.zookeeper",
}

# Clients of the user's own, by the package their class comes from. Each module has `adopt(client, options) -> Store`.
ADOPTERS: dict[str, str] = {
    "asyncpg": "leasehold._backends.postgres",
    "kazoo": "leasehold._backends.zookeeper",
    "psycopg": "leasehold._backends.postgres",
    "psycopg_pool": "leasehold._backends.postgres",
    "sqlalchemy": "leasehold._backends.postgres",
    "redis": "leasehold._backends.redis",
    "valkey": "leasehold._backends.redis",
}


def _url_of_environment() -> str | None:
    """The URL that the environment names, itself or by a file; None if it names none."""
    url, path = os.environ.get(URL_VARIABLE), os.environ.get(FILE_VARIABLE)
    if not path:
        return url or None
    if url:
        raise ConfigurationError(f"{URL_VARIABLE} and {FILE_VARIABLE} are both set; unset one of them")
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs time at the start of every command
            text = file.read(LONGEST_URL).strip()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"cannot read the store URL from {path} ({FILE_VARIABLE}): {error}") from None
    if not text or len(text.split()) > 1:
        raise ConfigurationError(f"{path} ({FILE_VARIABLE}) must hold one store URL and nothing else")
    return text


def find_namespace(namespace: str | None) -> str | None:
    """The namespace that was given, or else that of the environment."""
    return (os.environ.get(NAMESPACE_VARIABLE) or None) if namespace is None else namespace


def find_store(target: object, options: Mapping[str, object] | None = None) -> Store:
    """The store for a URL, an object with `open_backend`, a driver's own client, or, for None, the environment.

    `options` are for a client of the user's own, which has no URL to say them in.
    """
    if target is None:
        target = _url_of_environment()
        if not target:
            raise ConfigurationError(
                f"no store was named: pass a URL to connect(), or set {URL_VARIABLE} or {FILE_VARIABLE}. There is no "
                "silent default: fifty servers that each locked a private file would run the job fifty times. Say "
                "local: for the embedded SQLite file of this user on this host, sqlite:////path for one that the whole "
                "host shares, or memory://NAME for a store inside this process"
            )
    if options and (isinstance(target, str) or hasattr(target, "open_backend")):
        raise ConfigurationError(
            "options= goes with a client of your own; with a URL they are part of it: redis://host?acks=1&strict=1"
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
    raise ConfigurationError(f"cannot lock with {kind_of(target)}: pass a store URL or a store")


def _opener(scheme: str) -> Callable[[StoreURL], Store]:
    if scheme in SCHEMES:
        return cast("Callable[[StoreURL], Store]", import_module(SCHEMES[scheme]).open_url)
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow, and only needed for stores of third parties

    for point in entry_points(group=ENTRY_POINTS, name=scheme):
        return cast("Callable[[StoreURL], Store]", point.load())
    known = ", ".join(sorted(name for name in SCHEMES if "+" not in name or name.startswith("redis+")))
    raise ConfigurationError(f"no store has the scheme {scheme!r}; known: {known}")
