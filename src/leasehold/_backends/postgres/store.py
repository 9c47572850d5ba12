"""From a URL to a backend over connections of its own, with psycopg. No I/O. For pools and engines: `adopted_pool`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold._backends.postgres.backend import RowsBackend
from leasehold._backends.postgres.executor import Executor
from leasehold._backends.postgres.maintenance import Cleaning
from leasehold._backends.postgres.options import PostgresOptions, parse
from leasehold._backends.postgres.pool import OwnPool
from leasehold._backends.postgres.schema import Schema
from leasehold._backends.postgres.session import SessionBackend, SessionSource
from leasehold._backends.postgres.statements import Statements
from leasehold._backends.postgres.wire import wire_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leasehold._backends.postgres.connection import Connection
    from leasehold.spi import Backend, Runtime, Store
    from leasehold.store_url import StoreURL

__all__ = ["PostgresStore", "open_url"]


class PostgresStore:
    """A database, named but not yet connected to."""

    def __init__(self, options: PostgresOptions, parameters: Mapping[str, Any]) -> None:
        self._options = options
        self._parameters = parameters

    def open_backend(self, runtime: Runtime) -> Backend:
        """Connections of its own for each client, made with the first request."""
        options, wire = self._options, wire_for(runtime)
        statements = Statements(options.schema)
        if options.mode == "session":
            session = SessionSource(options, self._parameters, wire, runtime, statements)
            session.maintenance = Cleaning(statements, runtime)
            executor = Executor(session, Schema(statements, options.label), options.label, runtime)
            return SessionBackend(options, statements, executor, runtime, session)
        pool = OwnPool(options, self._parameters, wire, runtime, statements.greet)
        pool.maintenance = Cleaning(statements, runtime)

        async def listen() -> Connection | None:
            if options.listen is not None:
                return await pool.open_by(options.listen)
            return _if_direct(await pool.dedicated())

        executor = Executor(pool, Schema(statements, options.label), options.label, runtime)
        return RowsBackend(options, statements, executor, runtime, listen=listen)


def _if_direct(connection: Connection) -> Connection | None:
    """No connection where a pooler is in between: a notification would not arrive."""
    if connection.is_direct:
        return connection
    connection.close()
    return None


def open_url(url: StoreURL) -> Store:
    """`postgresql://user:password@host:5432/database`, also `postgres://` and `postgresql+psycopg://`."""
    options, parameters = parse(url)
    return PostgresStore(options, parameters)
