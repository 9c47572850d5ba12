"""From a URL to a backend. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._backends.mysql.backend import RowsBackend
from leasehold._backends.mysql.maintenance import Cleaning
from leasehold._backends.mysql.options import MysqlOptions, parse
from leasehold._backends.mysql.pool import Executor, OwnPool
from leasehold._backends.mysql.schema import Schema
from leasehold._backends.mysql.session import SessionBackend, SessionSource
from leasehold.kit.waits import waits_for

if TYPE_CHECKING:
    from leasehold._backends.mysql.pool import Source
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
        if options.mode == "session":
            session = SessionSource(options, waits, runtime)
            session.maintenance = Cleaning(options.label, runtime)
            return SessionBackend(options, _executor(session, options, runtime), runtime, session)
        pool = OwnPool(options, waits, runtime)
        pool.maintenance = Cleaning(options.label, runtime)
        return RowsBackend(options, _executor(pool, options, runtime), runtime, listen=pool.dedicated)


def _executor(source: Source, options: MysqlOptions, runtime: Runtime) -> Executor:
    return Executor(source, Schema(options.label), options.label, runtime, options.answer_timeout)


def open_url(url: StoreURL) -> Store:
    """`mysql://user:password@host:3306/database`, also `mariadb://` and with `+pymysql`."""
    return MysqlStore(parse(url))
