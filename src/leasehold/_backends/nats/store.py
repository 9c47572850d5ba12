"""`nats://h1,h2,h3` and `nats+tls://`: from a URL to a backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._backends.nats.backend import NatsBackend
from leasehold._backends.nats.options import read_url

if TYPE_CHECKING:
    from leasehold._backends.nats.options import Options
    from leasehold.spi import Backend, Runtime, Store
    from leasehold.store_url import StoreURL

__all__ = ["NatsStore", "open_url"]


def open_url(url: StoreURL) -> Store:
    """`nats://user:password@h1,h2,h3?bucket=NAME`, and with TLS: `nats+tls://h1,h2?tls_ca=FILE`."""
    return NatsStore(read_url(url))


class NatsStore:
    """A server or a cluster; nothing is connected before the first request of a backend."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def open_backend(self, runtime: Runtime) -> Backend:
        return NatsBackend(self._options, runtime)
