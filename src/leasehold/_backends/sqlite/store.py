"""From a URL to a backend: a lock file, named but not yet opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._backends.sqlite.backend import SqliteBackend
from leasehold._backends.sqlite.host import ThisHost
from leasehold._backends.sqlite.options import FENCE_FLOOR, OPTIONS, RENAMED, SYNCHRONOUS, locate
from leasehold.kit.options import read_options

if TYPE_CHECKING:
    from leasehold._backends.sqlite.host import Host
    from leasehold._backends.sqlite.options import Location
    from leasehold.spi import Backend, Runtime, Store
    from leasehold.store_url import StoreURL

__all__ = ["SqliteStore", "open_url"]


class SqliteStore:
    """A lock file, named but not yet opened."""

    def __init__(
        self,
        location: Location,
        *,
        synchronous: str = "normal",
        fence_floor: int = 0,
        host: Host | None = None,
    ) -> None:
        self._location = location
        self._synchronous = synchronous
        self._fence_floor = fence_floor
        self._host = host

    def open_backend(self, runtime: Runtime) -> Backend:
        """A connection of its own for each client; the file is opened with the first request."""
        host = self._host or ThisHost()
        return SqliteBackend(self._location, host, runtime, self._synchronous, self._fence_floor)


def open_url(url: StoreURL) -> Store:
    """`local:` is the file of this user on this host; `sqlite:////path` is one that others may share."""
    given = {name: value.lower() for name, value in url.options.items()}
    values = read_options(given, OPTIONS, f"{url.scheme}:", RENAMED)
    return SqliteStore(locate(url), synchronous=values[SYNCHRONOUS], fence_floor=values[FENCE_FLOOR])
