"""From a URL, or an adopted pool or engine, to a backend. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.backends.postgres.adopted_pool import AdoptedPool, lender_for
from leasehold.backends.postgres.backend import RowsBackend
from leasehold.backends.postgres.maintenance import Cleaning
from leasehold.backends.postgres.options import PostgresOptions, parse, read_for_adopted
from leasehold.backends.postgres.pool import Executor, OwnPool
from leasehold.backends.postgres.schema import Schema
from leasehold.backends.postgres.session import SessionBackend, SessionSource
from leasehold.backends.postgres.statements import Statements
from leasehold.backends.postgres.wire import wire_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from leasehold.backends.postgres.adopted_pool import Lender
    from leasehold.backends.postgres.connection import Connection
    from leasehold.backends.postgres.pool import Source
    from leasehold.backends.postgres.wire import Wire
    from leasehold.spi import Backend, Runtime, Store
    from leasehold.store_url import StoreURL

__all__ = ["AdoptedPoolStore", "PostgresStore", "adopt", "open_url"]


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

        return _rows_backend(options, statements, pool, runtime, wire=wire, listen=listen)


class AdoptedPoolStore:
    """A pool or an engine of the user's own."""

    def __init__(self, lender: Lender, options: PostgresOptions) -> None:
        self._lender = lender
        self._options = options

    def open_backend(self, runtime: Runtime) -> Backend:
        """Borrow connections of it, each for one request."""
        options, wire = self._options, wire_for(runtime)
        statements = Statements(options.schema)
        pool = AdoptedPool(self._lender, options, wire, runtime, statements.greet)
        pool.maintenance = Cleaning(statements, runtime)

        async def listen() -> Connection | None:
            return _if_direct(await pool.dedicated())

        return _rows_backend(options, statements, pool, runtime, wire=wire, listen=listen)


def _rows_backend(
    options: PostgresOptions,
    statements: Statements,
    source: Source,
    runtime: Runtime,
    *,
    wire: Wire,
    listen: Callable[[], Awaitable[Connection | None]],
) -> Backend:
    executor = Executor(source, Schema(statements, options.label), options.label, runtime)
    return RowsBackend(options, statements, executor, runtime, wire=wire, listen=listen)


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


def adopt(client: object, options: Mapping[str, str]) -> Store:
    """A pool or an engine of the user's own."""
    lender = lender_for(client)
    return AdoptedPoolStore(lender, read_for_adopted(lender.label, options))
