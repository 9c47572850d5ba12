"""Connections out of a pool or an engine of the user's own: each is borrowed for one request, and left as it was.

A borrowed connection is used only while it is in no transaction. Where one is needed for longer (to listen), one of
our own is made with the same parameters, so that nothing of the user's is tied up.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

import psycopg

from leasehold.backends.postgres import trouble
from leasehold.backends.postgres.background import start
from leasehold.backends.postgres.line import Line, Memory, open_line
from leasehold.backends.postgres.wires import BlockingWire, in_time, in_time_async
from leasehold.errors import BackendUnavailable, ClientClosed, ConfigurationError

if TYPE_CHECKING:
    from leasehold.backends.postgres.line import Wire
    from leasehold.backends.postgres.pool import Chore
    from leasehold.backends.postgres.settings import Settings
    from leasehold.backends.postgres.statements import Statement
    from leasehold.spi import Runtime

__all__ = ["BorrowingPool", "Lender", "lender_for"]

logger = logging.getLogger("leasehold.postgres")

GOODBYE = 1.0  # how long requests that are under way are waited for


class Lender(Protocol):
    """One kind of pool. A loan is whatever has to be given back."""

    blocking: bool
    label: str

    async def borrow(self, seconds: float) -> tuple[Any, psycopg.BaseConnection[Any]]:
        """A loan and its connection, within so many seconds."""

    async def give_back(self, loan: Any, *, broken: bool) -> None:
        """End a loan; a broken connection must not be lent again."""

    def check(self) -> None:
        """Refuse to work where it cannot."""


class BorrowingPool:
    """A `Source` over somebody else's pool."""

    def __init__(self, lender: Lender, settings: Settings, wire: Wire, runtime: Runtime, greet: Statement) -> None:
        if lender.blocking != isinstance(wire, BlockingWire):
            kind, other = ("blocking", "connect()") if lender.blocking else ("asyncio", "connect_async()")
            raise ConfigurationError(f"this is a {kind} pool or engine; give it to {other}")
        self._lender = lender
        self._settings = settings
        self._wire = wire
        self._runtime = runtime
        self._greet = greet
        self._known: WeakKeyDictionary[psycopg.BaseConnection[Any], Memory] = WeakKeyDictionary()
        self._debts: dict[object, None] = {}  # one for each connection that is borrowed now, or about to be
        self._used: WeakSet[Line] = WeakSet()
        self.is_closed = False
        self.chore: Chore | None = None

    async def take(self, until: float = math.inf, *, urgent: bool = False) -> Line:  # noqa: ARG002 - the limit is the owner's
        """See `Source`."""
        debt = object()
        self._debts[debt] = None
        try:
            line = await self._borrow(until)
        except BaseException:
            self._debts.pop(debt, None)
            raise
        line.slot = (line.slot, debt)
        self._used.add(line)
        return line

    def give(self, line: Line) -> None:
        """See `Source`."""
        self._used.discard(line)
        self._return(*line.slot, broken=False)
        chore = self.chore
        if chore is not None and not self.is_closed and chore.is_due():
            start(self._runtime, lambda: self._do_chore(chore), "leasehold postgres chore")

    def discard(self, line: Line, *, dead: bool) -> None:  # noqa: ARG002 - the others are the owner's business
        """See `Source`."""
        self._used.discard(line)
        line.close()
        self._return(*line.slot, broken=True)

    async def dedicated(self) -> Line:
        """A line of our own for one who keeps it for longer, and closes it."""
        line = await self.take()
        info = line.connection.info
        parameters: dict[str, object] = {**info.get_parameters(), "password": info.password}
        self.give(line)
        label, timeout = self._settings.label, self._settings.answer_timeout
        own = await open_line(self._wire, parameters, self._runtime, label, timeout, is_over=lambda: self.is_closed)
        try:
            await own.greet(self._greet, own=True)
        except BaseException:
            own.close()
            raise
        return own

    async def close(self) -> None:
        """See `Source`. The pool is the user's; what is borrowed gets back to it before that may be closed."""
        self.is_closed = True
        deadline = self._runtime.now() + GOODBYE
        while self._debts and self._runtime.now() < deadline:
            await self._runtime.sleep(0.005)
        for line in list(self._used):  # it got no answer; the pool replaces a connection that has failed
            self._wire.interrupt(line)

    def _require_open(self) -> None:
        if self.is_closed:
            raise ClientClosed(backend=self._settings.label)

    async def _borrow(self, until: float) -> Line:
        self._require_open()
        self._lender.check()
        loan, connection = await self._borrowed(until)
        try:
            return await self._line(loan, connection, until)
        except BaseException:
            self._return(loan, None, broken=True)
            self._require_open()
            raise

    async def _borrowed(self, until: float) -> tuple[Any, psycopg.BaseConnection[Any]]:
        label = self._settings.label
        seconds = min(self._settings.answer_timeout, max(until - self._runtime.now(), 0.0))
        try:
            return await self._lender.borrow(seconds)
        except psycopg.Error as error:
            self._require_open()
            raise trouble.connect_failed(error, label) from None
        except Exception as error:
            self._require_open()
            raise BackendUnavailable(f"no connection could be borrowed: {error}", backend=label) from error

    async def _line(self, loan: Any, connection: psycopg.BaseConnection[Any], until: float) -> Line:
        label = self._settings.label
        line = Line(connection, self._wire, self._runtime, label, self._settings.answer_timeout)
        if not line.is_usable():
            raise BackendUnavailable("the pool lent a connection that is in use or closed", backend=label)
        known = self._known.get(connection)
        if known is None:
            await line.greet(self._greet, own=False, until=until)
            self._known[connection] = line.memory
        else:
            line.memory = known
        line.slot = loan
        return line

    async def _do_chore(self, chore: Chore) -> None:
        """Borrow a connection for it like for any other request: nobody waits for it, and none is kept for longer."""
        try:
            line = await self.take()
            try:
                await chore.do(line)
            except BaseException:
                self.discard(line, dead=False)
                raise
            self.give(line)
        except Exception as error:  # noqa: BLE001 - nobody is there to be told
            logger.debug("a chore was not done, and is left for later: %s", error)

    def _return(self, loan: Any, debt: object, *, broken: bool) -> None:
        """Give it back: at once where that blocks shortly, beside the caller where it would suspend."""

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
        self.blocking = not asyncio.iscoroutinefunction(pool.getconn)
        known = psycopg.conninfo.conninfo_to_dict(pool.conninfo) if isinstance(pool.conninfo, str) else {}
        given = pool.kwargs if isinstance(pool.kwargs, dict) else {}
        self.label = _label({**known, **given})

    async def borrow(self, seconds: float) -> tuple[Any, psycopg.BaseConnection[Any]]:
        def lend() -> Any:
            return self._pool.getconn(timeout=seconds)

        if getattr(self._pool, "_check", None) is None:  # it waits no longer than it is told to
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

    Its pool waits as long as the engine was told to, and a new connection as long as libpq does: where that may happen,
    a blocking caller waits beside it.
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
        """Whether there is a connection that is lent without asking the server anything."""
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
    """The lender for a pool or an engine, or a sentence that says what can be given."""
    if hasattr(client, "getconn") and hasattr(client, "putconn"):
        return _PsycopgPool(client)
    if hasattr(client, "dialect") and hasattr(client, "url"):
        return _Engine(client)
    raise ConfigurationError(
        f"cannot lock with a {type(client).__name__}: a lock needs connections that are in no transaction of yours; "
        "pass a psycopg_pool pool, a SQLAlchemy engine or a postgresql:// URL"
    )
