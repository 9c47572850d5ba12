"""Single requests over connections of our own, kept in the kit's pool. It knows nothing of locks."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING
from weakref import WeakSet, ref

from leasehold.backends.postgres.connection import Connection, open_connection
from leasehold.backends.postgres.maintenance import start
from leasehold.backends.postgres.pool_queue import PoolQueue, Slot
from leasehold.errors import BackendError, BackendUnavailable, ClientClosed
from typing import TYPE_CHECKING, Protocol

from leasehold.backends.postgres import errors
from leasehold.backends.postgres.connection import GOOD, Connection, open_connection
from leasehold.errors import BackendError, ClientClosed
from leasehold.kit.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from leasehold.backends.postgres.maintenance import Maintenance
    from psycopg.pq.abc import PGresult

    from leasehold.backends.postgres.options import PostgresOptions
    from leasehold.backends.postgres.statements import Statement
    from leasehold.backends.postgres.wire import Wire
    from leasehold.spi import Runtime

__all__ = ["OwnPool"]


class OwnPool:
class Source(Protocol):
    """Where connections for single requests come from."""

    is_closed: bool

    async def take(self, until: float = math.inf, *, first: bool = False, extra: bool = False) -> Connection:
        """A connection for one call, by `until`.

        `first`: ahead of all calls without it that wait. `extra`: may go beyond the limit by one connection.
        """

    def give(self, connection: Connection) -> None:
        """The call came to its end: the connection may be used again."""

    def discard(self, connection: Connection, *, dead: bool) -> None:
        """It did not: close the connection. `dead`: it failed, and idle ones may have failed with it."""

    async def close(self) -> None:
        """Close all connections; calls that run or wait end with `ClientClosed`."""


class Executor:
    """Single requests over a source: makes missing tables, and turns errors of the server into ours."""

    def __init__(self, source: Source, schema: Schema, label: str, runtime: Runtime) -> None:
        self.source = source
        self.label = label
        self._schema = schema
        self._runtime = runtime

    async def execute(
        self,
        statement: Statement,
        values: Sequence[bytes | None],
        until: float = math.inf,
        *,
        first: bool = False,
        extra: bool = False,
        repeat: bool = True,
    ) -> PGresult:
        """One request, one round trip, over by `until`; for `first` and `extra` see `Source`.

        `repeat`: a request that the server refused because the tables or a prepared statement are missing was not
        applied; it is sent once more after they are made.
        """
        connection = await self.source.take(until, first=first, extra=extra)
        try:
            answer = await connection.execute(statement, values, until)
            if answer.status not in GOOD:
                self._check(connection, answer)
        except BaseException as error:
            self._discard(connection, error, until)
            raise
        self.source.give(connection)
        if answer.status in GOOD:
            return answer
        code = errors.sqlstate(answer)
        if repeat and (code in errors.UNPREPARED or (code in errors.MISSING and await self._make_schema(until))):
            return await self.execute(statement, values, until, first=first, extra=extra, repeat=False)
        raise errors.translated(answer, self.label)

    def _discard(self, connection: Connection, error: BaseException, until: float) -> None:
        """Close the connection of a call that failed. A caller with little time left proves nothing about others."""
        in_a_hurry = self._runtime.now() >= until and not connection.is_broken()
        self.source.discard(connection, dead=isinstance(error, BackendError) and not in_a_hurry)
        if self.source.is_closed and isinstance(error, BackendError):
            raise ClientClosed(backend=self.label) from None

    def _check(self, connection: Connection, answer: PGresult) -> None:
        """Raise if the connection must not be used again after this error."""
        code = errors.sqlstate(answer)
        if errors.is_fatal(answer) or errors.is_stale(code):
            raise errors.translated(answer, self.label)
        if code in errors.UNPREPARED:
            connection.forget_prepared()

    async def _make_schema(self, until: float) -> bool:
        connection = await self.source.take(until)
        try:
            made = await self._schema.make(connection, until)
        except BaseException as error:
            self._discard(connection, error, until)
            raise
        self.source.give(connection)
        return made


class OwnPool(Pool[Connection]):
    """A source that makes its connections itself."""

    product = "postgres"

    def __init__(
        self, options: PostgresOptions, parameters: Mapping[str, Any], wire: Wire, runtime: Runtime, greet: Statement
    ):
        super().__init__(runtime, options.label, options.connections, options.answer_timeout)
        self._options = options
        self._parameters = dict(parameters)
        self._wire = wire
        self._greet = greet
        self._idle: deque[Connection] = deque()
        self._new: WeakSet[Connection] = WeakSet()  # connected, and not greeted yet
        self._slots: WeakSet[Slot] = WeakSet()
        self._guard = runtime.guard()
        self._queue = PoolQueue(runtime)
        self._wake = runtime.signal()
        self._has_worker = False
        self._worker: Task | None = None
        self.is_closed = False
        self.maintenance: Maintenance | None = None

    async def take(self, until: float = math.inf, *, first: bool = False, extra: bool = False) -> Connection:
        queue = self._queue
        while True:
            found: Connection | Slot | None = None
            if extra or (not queue.first and (first or not queue.rest)):
                try:
                    found = self._idle.pop()
                except IndexError:
                    found = self._new_slot(extra=extra)
            if found is None:
                deadline = min(self._runtime.now() + BUSY * self._options.answer_timeout, until)
                found = await queue.wait_for(lambda: self._look(extra=extra), deadline, self._require_open, first=first)
            if found is None:
                raise self._too_busy()
            connection = await self._fill(found, until) if isinstance(found, Slot) else found
            if connection.is_usable():
                if self.is_closed:
                    connection.interrupt()
                return connection
            connection.close()

    def _look(self, *, extra: bool) -> Connection | Slot | None:
        """An idle connection, or a slot for a new one."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._new_slot(extra=extra)

    def give(self, connection: Connection) -> None:
        connection.idle_since = self._runtime.now()
        self._idle.append(connection)
        if self.is_closed:
            self._close_idle(None)
        if self._queue.first or self._queue.rest:
            self._queue.call_one()
        if not self._has_worker:
            self._start_worker()

    def discard(self, connection: Connection, *, dead: bool) -> None:
        connection.close()
        connection.slot = None
        if dead:
            self._close_idle(None)
        self._queue.call_one()

    async def dedicated(self) -> Connection:
        """A connection outside the limit, which its user keeps for longer, and closes."""
        return await self._open(math.inf)

    async def open_by(self, parameters: Mapping[str, Any]) -> Connection:
        """The same to another address."""
        return await self._open_by(dict(parameters), math.inf)

    async def close(self) -> None:
        self.is_closed = True
        self._close_idle(None)
        for connection in self._in_use():
            connection.interrupt()
        self._queue.call_all()
        self._wake.set()
        if self._worker is not None:
            await self._worker.join(self._runtime.now() + GOODBYE)
    async def _open(self, until: float) -> Connection:
        return await self._open_by(self._parameters, until)

    def _interrupt(self, connection: Connection) -> None:
        self._wire.interrupt(connection)

    async def _open_by(self, parameters: dict[str, Any], until: float) -> Connection:
        self._require_open()
        label, timeout = self._options.label, self._options.answer_timeout
        try:
            connection = await open_connection(
                self._wire, parameters, self._runtime, label, timeout, until=until, is_over=lambda: self.is_closed
            )
            await self._greeted(connection, until)
        except BackendError:
            self._require_open()
            raise
        return connection

    async def _greeted(self, connection: Connection, until: float) -> None:
        self._new.add(connection)
        try:
            await connection.greet(self._greet, own=True, until=until)
        except BaseException:
            connection.close()
            raise
        finally:
            self._new.discard(connection)
