"""Connections of a pool or an engine of the user's own: each is borrowed for one request, and left as it was.

A borrowed connection is used only while it is in no transaction. Where one is needed for longer (to listen), one of our
own is made with the same parameters, so that the user's pool keeps all of its connections.
"""

from __future__ import annotations

import inspect
import logging
import math
import os
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

import psycopg

from leasehold.backends.postgres import errors
from leasehold.backends.postgres.asyncio_wire import in_time_async
from leasehold.backends.postgres.blocking_wire import in_time
from leasehold.backends.postgres.connection import Connection, SessionFacts, open_connection
from leasehold.backends.postgres.maintenance import start
from leasehold.errors import BackendUnavailable, ClientClosed, ConfigurationError

if TYPE_CHECKING:
    from leasehold.backends.postgres.maintenance import Maintenance
    from leasehold.backends.postgres.options import PostgresOptions
    from leasehold.backends.postgres.statements import Statement
    from leasehold.backends.postgres.wire import Wire
    from leasehold.spi import Runtime

__all__ = ["AdoptedPool", "Lender", "lender_for"]

logger = logging.getLogger("leasehold.postgres")

GOODBYE = 1.0  # how long close() waits for requests that are under way


class Lender(Protocol):
    """One kind of pool. A loan is the object that has to be given back."""

    blocking: bool
    label: str

    async def borrow(self, seconds: float) -> tuple[Any, psycopg.BaseConnection[Any]]:
        """A loan and its connection, within so many seconds."""

    async def give_back(self, loan: Any, *, broken: bool) -> None:
        """End a loan; a broken connection must not be lent again."""

    def check(self) -> None:
        """Refuse to work where it cannot."""


class AdoptedPool:
    """A `Source` over a pool or an engine of the user's own."""

    def __init__(
        self, lender: Lender, options: PostgresOptions, wire: Wire, runtime: Runtime, greet: Statement
    ) -> None:
        if lender.blocking != runtime.blocking:
            kind, other = ("blocking", "connect()") if lender.blocking else ("asyncio", "connect_async()")
            raise ConfigurationError(f"this is a {kind} pool or engine; give it to {other}")
        self._lender = lender
        self._options = options
        self._wire = wire
        self._runtime = runtime
        self._greet = greet
        self._known: WeakKeyDictionary[psycopg.BaseConnection[Any], SessionFacts] = WeakKeyDictionary()
        self._debts: dict[object, None] = {}  # one for each connection that is borrowed now, or about to be
        self._used: WeakSet[Connection] = WeakSet()
        self.is_closed = False
        self.maintenance: Maintenance | None = None

    async def take(self, until: float = math.inf, *, first: bool = False, extra: bool = False) -> Connection:  # noqa: ARG002 - order and limit are the owner's
        debt = object()
        self._debts[debt] = None
        try:
            connection = await self._borrow(until)
        except BaseException:
            self._debts.pop(debt, None)
            raise
        connection.slot = (connection.slot, debt)
        self._used.add(connection)
        return connection

    def give(self, connection: Connection) -> None:
        self._used.discard(connection)
        self._return(*connection.slot, broken=False)
        maintenance = self.maintenance
        if maintenance is not None and not self.is_closed and maintenance.is_due():
            start(self._runtime, lambda: self._maintain(maintenance), "leasehold postgres maintenance")

    def discard(self, connection: Connection, *, dead: bool) -> None:  # noqa: ARG002 - idle ones are the owner's
        self._used.discard(connection)
        connection.close()
        self._return(*connection.slot, broken=True)

    async def dedicated(self) -> Connection:
        """A connection of our own, which its user keeps for longer, and closes."""
        borrowed = await self.take()
        info = borrowed.driver_connection.info
        parameters: dict[str, object] = {**info.get_parameters(), "password": info.password}
        self.give(borrowed)
        label, timeout = self._options.label, self._options.answer_timeout
        own = await open_connection(
            self._wire, parameters, self._runtime, label, timeout, is_over=lambda: self.is_closed
        )
        try:
            await own.greet(self._greet, own=True)
        except BaseException:
            own.close()
            raise
        return own

    async def close(self) -> None:
        """The pool stays open. What is borrowed is returned before the user may close it."""
        self.is_closed = True
        deadline = self._runtime.now() + GOODBYE
        while self._debts and self._runtime.now() < deadline:
            await self._runtime.sleep(0.005)
        for connection in list(self._used):  # it got no answer; the pool replaces a connection that has failed
            self._wire.interrupt(connection)

    def _require_open(self) -> None:
        if self.is_closed:
            raise ClientClosed(backend=self._options.label)

    async def _borrow(self, until: float) -> Connection:
        self._require_open()
        self._lender.check()
        loan, driver_connection = await self._borrowed(until)
        try:
            return await self._connection(loan, driver_connection, until)
        except BaseException:
            self._return(loan, None, broken=True)
            self._require_open()
            raise

    async def _borrowed(self, until: float) -> tuple[Any, psycopg.BaseConnection[Any]]:
        label = self._options.label
        seconds = min(self._options.answer_timeout, max(until - self._runtime.now(), 0.0))
        try:
            return await self._lender.borrow(seconds)
        except psycopg.Error as error:
            self._require_open()
            raise errors.connect_failed(error, label) from None
        except Exception as error:
            self._require_open()
            raise BackendUnavailable(
                f"{label}: no connection could be borrowed; is the pool open and large enough? ({error})", backend=label
            ) from error

    async def _connection(self, loan: Any, driver_connection: psycopg.BaseConnection[Any], until: float) -> Connection:
        label = self._options.label
        try:
            connection = Connection(driver_connection, self._wire, self._runtime, label, self._options.answer_timeout)
        except psycopg.Error:  # closed
            connection = None
        if connection is None or not connection.is_usable():
            raise BackendUnavailable(
                f"{label}: the pool lent a connection that is closed or in a transaction; have it return connections "
                "only after a commit or a rollback",
                backend=label,
            )
        known = self._known.get(driver_connection)
        if known is None:
            await connection.greet(self._greet, own=False, until=until)
            self._known[driver_connection] = connection.facts
        else:
            connection.facts = known
        connection.slot = loan
        return connection

    async def _maintain(self, maintenance: Maintenance) -> None:
        """Borrow a connection for it as for any other request, beside the caller, and only for its time."""
        try:
            connection = await self.take()
            try:
                await maintenance.run(connection)
            except BaseException:
                self.discard(connection, dead=False)
                raise
            self.give(connection)
        except Exception as error:  # noqa: BLE001 - there is no caller to raise it to
            logger.debug("maintenance failed, and is left for later: %s", error)

    def _return(self, loan: Any, debt: object, *, broken: bool) -> None:
        """Return a loan: at once where that blocks shortly, beside the caller where it would suspend."""

        async def give_back() -> None:
            try:
                await self._lender.give_back(loan, broken=broken)
            finally:
                self._debts.pop(debt, None)

        if self._lender.blocking:
            step = give_back()
            try:
                step.send(None)
            except StopIteration:
                return
            finally:
                step.close()
        else:
            start(self._runtime, give_back, "leasehold postgres return")


class _PsycopgPool:
    """`psycopg_pool.ConnectionPool` and `AsyncConnectionPool`. Its connections do not survive a fork."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._process = os.getpid()
        self.blocking = not inspect.iscoroutinefunction(pool.getconn)
        known = psycopg.conninfo.conninfo_to_dict(pool.conninfo) if isinstance(pool.conninfo, str) else {}
        given = pool.kwargs if isinstance(pool.kwargs, dict) else {}
        self.label = _label({**known, **given})

    async def borrow(self, seconds: float) -> tuple[Any, psycopg.BaseConnection[Any]]:
        def lend() -> Any:
            return self._pool.getconn(timeout=seconds)

        if getattr(self._pool, "_check", None) is None:  # then it keeps to the timeout
            connection = lend() if self.blocking else await lend()
        elif self.blocking:
            connection = in_time(lend, self._pool.putconn, seconds)
        else:
            connection = await in_time_async(lend, self._pool.putconn, seconds)
        return connection, connection

    async def give_back(self, loan: Any, *, broken: bool) -> None:
        if broken:
            loan.pgconn.finish()
        returned = self._pool.putconn(loan)
        if not self.blocking:
            await returned

    def check(self) -> None:
        if os.getpid() != self._process:
            raise ConfigurationError(
                "this pool belongs to the process that made it, and its connections do not survive a fork; make the "
                "pool, and the client, in each process"
            )


class _Engine:
    """A SQLAlchemy engine for PostgreSQL with psycopg, plain or async. It notices a fork by itself.

    Its pool waits for as long as the engine's own settings say, and a new connection for as long as libpq's do. Where
    that may happen, it runs beside the caller, which gives up in time.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.blocking = not hasattr(engine, "sync_engine")
        dialect = engine.dialect
        if dialect.name != "postgresql" or dialect.driver not in ("psycopg", "psycopg_async"):
            raise ConfigurationError(
                f"cannot lock with an engine for {dialect.name}+{dialect.driver}: make one with a "
                "postgresql+psycopg:// URL"
            )
        url = engine.url
        self.label = _label({"user": url.username, "host": url.host, "port": url.port, "dbname": url.database})

    async def borrow(self, seconds: float) -> tuple[Any, psycopg.BaseConnection[Any]]:
        from sqlalchemy.exc import DBAPIError  # noqa: PLC0415 - it is there: we were given its engine

        try:
            if self.blocking:
                connect = self._engine.connect
                loan = connect() if self._has_idle() else in_time(connect, lambda late: late.close(), seconds)
                return loan, loan.connection.driver_connection
            if self._has_idle():
                loan = await self._engine.connect()
            else:
                loan = await in_time_async(self._lend, lambda late: late.close(), seconds)
            return loan, (await loan.get_raw_connection()).driver_connection
        except DBAPIError as error:
            if isinstance(error.orig, psycopg.Error):
                raise error.orig from None
            raise

    async def _lend(self) -> Any:
        return await self._engine.connect()

    def _has_idle(self) -> bool:
        """Whether there is a connection that is lent without a round trip to the server."""
        pool = self._engine.pool
        return getattr(pool, "_pre_ping", True) is False and getattr(pool, "checkedin", int)() > 0

    async def give_back(self, loan: Any, *, broken: bool) -> None:
        if self.blocking:
            if broken:
                loan.invalidate()
            loan.close()
            return
        if broken:
            await loan.invalidate()
        await loan.close()

    def check(self) -> None:
        """It may be used anywhere."""


def _label(facts: dict[str, Any]) -> str:
    user = f"{facts['user']}@" if facts.get("user") else ""
    port = f":{facts['port']}" if facts.get("port") else ""
    return f"postgresql://{user}{facts.get('host') or ''}{port}/{facts.get('dbname') or ''}"


def lender_for(client: Any) -> Lender:
    """The lender for a pool or an engine; anything else is refused with what can be passed."""
    if hasattr(client, "getconn") and hasattr(client, "putconn"):
        return _PsycopgPool(client)
    if hasattr(client, "dialect") and hasattr(client, "url"):
        return _Engine(client)
    raise ConfigurationError(
        f"cannot lock with a {type(client).__name__}: a lock needs connections that are in no transaction of yours; "
        "pass a psycopg_pool pool, a SQLAlchemy engine or a postgresql:// URL"
    )
