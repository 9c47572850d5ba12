"""Connections of a pool or an engine of the user's own: each is borrowed for one request, and left as it was.

A borrowed connection is used only while it is in no transaction. Where one is needed for longer (to listen), one of our
own is made with the same parameters, so that the user's pool keeps all of its connections.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from leasehold._backends.postgres import errors
from leasehold._backends.postgres.backend import RowsBackend
from leasehold._backends.postgres.executor import Executor
from leasehold._backends.postgres.lender import lender_for
from leasehold._backends.postgres.maintenance import Cleaning
from leasehold._backends.postgres.options import read_for_adopted
from leasehold._backends.postgres.schema import Schema
from leasehold._backends.postgres.statements import Statements
from leasehold.errors import BackendUnavailable, ClientClosed, ConfigurationError
from leasehold.kit.worker import spawn_late

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leasehold._backends.postgres.driver import AnyConnection, SessionFacts
    from leasehold._backends.postgres.lender import Lender
    from leasehold._backends.postgres.maintenance import Maintenance
    from leasehold._backends.postgres.options import PostgresOptions
    from leasehold._backends.postgres.statements import Statement
    from leasehold.spi import Backend, Runtime, Store

__all__ = ["AdoptedPool", "AdoptedPoolStore", "adopt"]

logger = logging.getLogger("leasehold.postgres")

CLOSE_PATIENCE = 1.0  # how long close() waits for requests that are under way


class AdoptedPool:
    """A `Source` over a pool or an engine of the user's own."""

    def __init__(self, lender: Lender, options: PostgresOptions, runtime: Runtime, greet: Statement) -> None:
        if lender.blocking != runtime.blocking:
            kind, other = ("a blocking", "connect()") if lender.blocking else ("an asyncio", "connect_async()")
            raise ConfigurationError(f"this is {kind} pool or engine; give it to {other}")
        self._lender = lender
        self._options = options
        self._runtime = runtime
        self._greet = greet
        self._known: WeakKeyDictionary[Any, SessionFacts] = WeakKeyDictionary()
        self._debts: dict[object, None] = {}  # one for each connection that is borrowed now, or about to be
        self._used: WeakSet[AnyConnection] = WeakSet()
        self.is_closed = False
        self.maintenance: Maintenance | None = None

    async def take(self, until: float = math.inf, *, first: bool = False, extra: bool = False) -> AnyConnection:  # noqa: ARG002 - order and limit are the owner's
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

    def give(self, connection: AnyConnection) -> None:
        self._used.discard(connection)
        self._return(*connection.slot, broken=False)
        maintenance = self.maintenance
        if maintenance is not None and not self.is_closed and maintenance.is_due():
            spawn_late(self._runtime, lambda: self._maintain(maintenance), "leasehold postgres maintenance")

    def discard(self, connection: AnyConnection, *, dead: bool) -> None:  # noqa: ARG002 - idle ones are the owner's
        self._used.discard(connection)
        connection.close()
        self._return(*connection.slot, broken=True)

    async def dedicated(self) -> AnyConnection | None:
        """A connection of our own, which its user keeps for longer, and closes; None where it would be of no use.

        So it is where a pooler is in between: a notification would not arrive.
        """
        borrowed = await self.take()
        like, timeout = borrowed.driver_connection, self._options.answer_timeout
        self.give(borrowed)
        own = await self._lender.another(like, self._runtime, timeout, lambda: self.is_closed)
        if own is None:
            return None
        try:
            await own.greet(self._greet, own=True)
        except BaseException:
            own.close()
            raise
        if not own.is_direct:
            own.close()
            return None
        return own

    async def close(self) -> None:
        """The pool stays open. What is borrowed is returned before the user may close it."""
        self.is_closed = True
        deadline = self._runtime.now() + CLOSE_PATIENCE
        while self._debts and self._runtime.now() < deadline:
            await self._runtime.sleep(0.005)
        for connection in list(self._used):  # it got no answer; the pool replaces a connection that has failed
            connection.interrupt()

    def _require_open(self) -> None:
        if self.is_closed:
            raise ClientClosed(backend=self._options.label)

    async def _borrow(self, until: float) -> AnyConnection:
        self._require_open()
        self._lender.check()
        loan, driver_connection = await self._borrowed(until)
        try:
            return await self._connection(loan, driver_connection, until)
        except BaseException:
            self._return(loan, None, broken=True)
            self._require_open()
            raise

    async def _borrowed(self, until: float) -> tuple[Any, Any]:
        label = self._options.label
        seconds = min(self._options.answer_timeout, max(until - self._runtime.now(), 0.0))
        try:
            return await self._lender.borrow(seconds)
        except ConfigurationError:
            raise
        except self._lender.driver_errors as error:
            self._require_open()
            raise errors.connect_failed(error, label) from None
        except Exception as error:
            self._require_open()
            raise BackendUnavailable(
                f"{label}: no connection could be borrowed; is the pool open and large enough? ({error})", backend=label
            ) from error

    async def _connection(self, loan: Any, driver_connection: Any, until: float) -> AnyConnection:
        label = self._options.label
        connection = self._lender.connection(driver_connection, self._runtime, self._options.answer_timeout)
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
            spawn_late(self._runtime, give_back, "leasehold postgres return")


class AdoptedPoolStore:
    """A pool or an engine of the user's own."""

    def __init__(self, lender: Lender, options: PostgresOptions) -> None:
        self._lender = lender
        self._options = options

    def open_backend(self, runtime: Runtime) -> Backend:
        """Borrow connections of it, each for one request."""
        options = self._options
        statements = Statements(options.schema)
        pool = AdoptedPool(self._lender, options, runtime, statements.greet)
        pool.maintenance = Cleaning(statements, runtime)
        executor = Executor(pool, Schema(statements, options.label), options.label, runtime)
        return RowsBackend(options, statements, executor, runtime, listen=pool.dedicated)


def adopt(client: object, options: Mapping[str, str]) -> Store:
    """A pool or an engine of the user's own."""
    lender = lender_for(client)
    return AdoptedPoolStore(lender, read_for_adopted(lender.label, options))
