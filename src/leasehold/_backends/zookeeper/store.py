"""From a URL, or a kazoo client of the user's own, to a store. No I/O here, and no kazoo before it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leasehold._backends.zookeeper.options import Options
    from leasehold.spi import Backend, Runtime, Store
    from leasehold.store_url import StoreURL

__all__ = ["ZooKeeperStore", "adopt", "open_url"]


class ZooKeeperStore:
    """An ensemble, named but not connected to."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def open_backend(self, runtime: Runtime) -> Backend:
        """Sessions of its own for each client; the first is opened with the first request."""
        from leasehold._backends.zookeeper.backend import ZooKeeperBackend  # noqa: PLC0415 - imports kazoo

        return ZooKeeperBackend(self._options, runtime)


def open_url(url: StoreURL) -> Store:
    """`zk://user:password@h1,h2,h3/root`, and `zks://` with TLS."""
    try:
        from leasehold._backends.zookeeper.options import Options  # noqa: PLC0415 - kazoo may not be installed
    except ImportError as error:
        raise ConfigurationError(
            f"{url.scheme}: needs kazoo ({error}); install it with: pip install 'leasehold[zookeeper]'"
        ) from error
    return ZooKeeperStore(Options.from_url(url))


def adopt(client: Any, options: Mapping[str, str]) -> Store:
    """A store on the servers of a kazoo client, with its credentials and sessions of our own; below `/leasehold`."""
    from leasehold._backends.zookeeper.options import Options  # noqa: PLC0415 - kazoo is installed: this is its client

    return ZooKeeperStore(Options.from_client(client, options))
