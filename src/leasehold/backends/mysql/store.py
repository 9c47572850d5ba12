"""From a URL to a backend. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.backends.mysql.backend import RowsBackend
from leasehold.backends.mysql.options import MysqlOptions, parse
from leasehold.backends.mysql.pool import Executor, OwnPool
from leasehold.backends.mysql.schema import Schema
from leasehold.kit.waits import waits_for

if TYPE_CHECKING:
    from leasehold.spi import Backend, Runtime, Store
    from leasehold.store_url import StoreURL

__all__ = ["MysqlStore", "open_url"]


class MysqlStore:
    """A database, named but not yet connected to."""

    def __init__(self, options: MysqlOptions) -> None:
        self._options = options

    def open_backend(self, runtime: Runtime) -> Backend:
        """Connections of its own for each client, made with the first request."""
        options, waits = self._options, waits_for(runtime)
        pool = OwnPool(options, waits, runtime)
        executor = Executor(pool, Schema(options.label), options.label, runtime, options.answer_timeout)
        return RowsBackend(options, executor, runtime, listen=pool.dedicated)


def open_url(url: StoreURL) -> Store:
    """`mysql://user:password@host:3306/database`, also `mariadb://` and with `+pymysql`."""
    return MysqlStore(parse(url))
