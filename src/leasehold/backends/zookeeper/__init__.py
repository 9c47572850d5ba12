"""`zk://`: locks in an Apache ZooKeeper ensemble, through kazoo's connection and a recipe of our own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leasehold.spi import Store
    from leasehold.store_url import StoreURL

__all__ = ["adopt", "open_url"]


def open_url(url: StoreURL) -> Store:
    """`zk://user:password@h1,h2,h3/root`, and `zks://` with TLS."""
    try:
        from leasehold.backends.zookeeper.backend import ZooKeeperStore  # noqa: PLC0415 - kazoo may not be there
        from leasehold.backends.zookeeper.settings import Settings  # noqa: PLC0415
    except ImportError as error:
        raise ConfigurationError(
            f"{url.scheme}: needs kazoo ({error}); install it with: pip install 'leasehold[zookeeper]'"
        ) from error
    return ZooKeeperStore(Settings.from_url(url))


def adopt(client: Any, options: Mapping[str, str]) -> Store:
    """A store on the servers of a kazoo client, with its credentials and sessions of our own; below `/leasehold`."""
    from leasehold.backends.zookeeper.backend import ZooKeeperStore  # noqa: PLC0415 - kazoo is there: this is its client
    from leasehold.backends.zookeeper.settings import Settings  # noqa: PLC0415

    return ZooKeeperStore(Settings.from_client(client, options))
