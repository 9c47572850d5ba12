"""`etcd://h1,h2,h3` and `etcds://`: from a URL to a backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._backends.etcd.backend import EtcdBackend
from leasehold._backends.etcd.options import read_url

if TYPE_CHECKING:
    from leasehold._backends.etcd.options import Options
    from leasehold.spi import Backend, Runtime, Store
    from leasehold.store_url import StoreURL

__all__ = ["EtcdStore", "open_url"]


def open_url(url: StoreURL) -> Store:
    """`etcd://user:password@h1,h2,h3/root`, and with TLS: `etcds://h1,h2?tls_ca=FILE&tls_cert=FILE&tls_key=FILE`."""
    return EtcdStore(read_url(url))


class EtcdStore:
    """A cluster; nothing is connected before the first request of a backend."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def open_backend(self, runtime: Runtime) -> Backend:
        return EtcdBackend(self._options, runtime)
