"""From a URL, or a pool or engine of the user's own, to a backend. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.backends.postgres.borrowed import BorrowingPool, lender_for
from leasehold.backends.postgres.pool import Asking, OwnPool
from leasehold.backends.postgres.rows import RowsBackend
from leasehold.backends.postgres.schema import Schema
from leasehold.backends.postgres.session import SessionBackend, SessionSource
from leasehold.backends.postgres.settings import Settings, parse, read_for_loans
from leasehold.backends.postgres.statements import Statements, number
from leasehold.backends.postgres.wires import wire_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from leasehold.backends.postgres.borrowed import Lender
    from leasehold.backends.postgres.line import Line, Wire
    from leasehold.backends.postgres.pool import Source
    from leasehold.spi import Backend, Runtime, Store
    from leasehold.store_url import StoreURL

__all__ = ["BorrowingStore", "PostgresStore", "adopt", "open_url"]

CLEAN_EVERY = 60.0
CLEAN_SLICE = 1000


class PostgresStore:
    """A database, named but not yet connected to."""

    def __init__(self, settings: Settings, parameters: Mapping[str, Any]) -> None:
        self._settings = settings
        self._parameters = parameters

    def open_backend(self, runtime: Runtime) -> Backend:
        """Connections of its own for each client, made with the first request."""
        settings, wire = self._settings, wire_for(runtime)
        statements = Statements(settings.schema)
        if settings.mode == "session":
            session = SessionSource(settings, self._parameters, wire, runtime, statements)
            session.chore = _Cleaner(statements, runtime)
            asking = Asking(session, Schema(statements, settings.label), settings.label, runtime)
            return SessionBackend(settings, statements, asking, runtime, session)
        pool = OwnPool(settings, self._parameters, wire, runtime, statements.greet)
        pool.chore = _Cleaner(statements, runtime)

        async def listen() -> Line | None:
            if settings.listen is not None:
                return await pool.open_by(settings.listen)
            return _if_direct(await pool.dedicated())

        return _rows(settings, statements, pool, runtime, wire=wire, listen=listen)


class BorrowingStore:
    """A pool or an engine of the user's own."""

    def __init__(self, lender: Lender, settings: Settings) -> None:
        self._lender = lender
        self._settings = settings

    def open_backend(self, runtime: Runtime) -> Backend:
        """Borrow connections from it, each for one request."""
        settings, wire = self._settings, wire_for(runtime)
        statements = Statements(settings.schema)
        pool = BorrowingPool(self._lender, settings, wire, runtime, statements.greet)
        pool.chore = _Cleaner(statements, runtime)

        async def listen() -> Line | None:
            return _if_direct(await pool.dedicated())

        return _rows(settings, statements, pool, runtime, wire=wire, listen=listen)


def _rows(
    settings: Settings,
    statements: Statements,
    source: Source,
    runtime: Runtime,
    *,
    wire: Wire,
    listen: Callable[[], Awaitable[Line | None]],
) -> Backend:
    asking = Asking(source, Schema(statements, settings.label), settings.label, runtime)
    return RowsBackend(settings, statements, asking, runtime, wire=wire, listen=listen)


def _if_direct(line: Line) -> Line | None:
    if line.is_direct:
        return line
    line.close()
    return None


class _Cleaner:
    """Has the database clean a slice of its rows once in a while."""

    def __init__(self, statements: Statements, runtime: Runtime) -> None:
        self._statement = statements.clean
        self._runtime = runtime
        self._due = runtime.now() + CLEAN_EVERY * runtime.random()

    def is_due(self) -> bool:
        """See `Chore`."""
        now = self._runtime.now()
        if now < self._due:
            return False
        self._due = now + CLEAN_EVERY
        return True

    async def do(self, line: Line) -> None:
        """See `Chore`."""
        await line.ask(self._statement, (b"%d" % CLEAN_SLICE, number(1.0)))


def open_url(url: StoreURL) -> Store:
    """`postgresql://user:password@host:5432/database`, also `postgres://` and `postgresql+psycopg://`."""
    settings, parameters = parse(url)
    return PostgresStore(settings, parameters)


def adopt(client: object, options: Mapping[str, str]) -> Store:
    """A pool or an engine of the user's own."""
    lender = lender_for(client)
    return BorrowingStore(lender, read_for_loans(lender.label, options))
