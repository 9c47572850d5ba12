"""Single queries over connections of our own, kept in the kit's pool. It knows nothing of locks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from leasehold._backends.mysql import errors
from leasehold._backends.mysql.connection import Connection, dial
from leasehold.errors import BackendError, ClientClosed, OutcomeUnknown
from leasehold.kit.openings import Openings
from leasehold.kit.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._backends.mysql.options import MysqlOptions
    from leasehold._backends.mysql.packets import Answer, Result
    from leasehold._backends.mysql.schema import Schema
    from leasehold.kit.waits import Waits
    from leasehold.spi import Runtime

__all__ = ["Dialer", "Executor", "OwnPool", "Source"]

PAUSE = 0.005  # before a request that met a deadlock is sent again
SQL_MODE = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"
IDLE = 60  # seconds until the server closes an idle connection of ours, should we be gone in silence

# -> the session that answers, whether binary logs are written, and in which format
WHO = b"SELECT CONNECTION_ID(), @@log_bin, @@binlog_format"
READ_COMMITTED = b"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
REPEATABLE_READ = b"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"


class Source(Protocol):
    """Where connections for single queries come from."""

    is_closed: bool

    async def take(self, until: float = math.inf, *, first: bool = False, extra: bool = False) -> Connection:
        """See `Pool`."""

    def give(self, connection: Connection) -> None:
        """See `Pool`."""

    def discard(self, connection: Connection, *, dead: bool) -> None:
        """See `Pool`."""

    async def close(self) -> None:
        """See `Pool`."""


class Executor:
    """Single queries over a source: makes missing tables, and turns errors of the server into ours."""

    def __init__(self, source: Source, schema: Schema, label: str, runtime: Runtime, patience: float) -> None:
        self.source = source
        self.label = label
        self._patience = patience  # how long a query is sent again after deadlocks
        self._schema = schema
        self._runtime = runtime

    async def execute(
        self, text: bytes, until: float = math.inf, *, first: bool = False, extra: bool = False
    ) -> Sequence[Result]:
        """One query, one round trip, over by `until`; the results of its statements. See `Pool` for the others.

        A query that the server refused because the tables are missing, or for a deadlock, was not applied: it is sent
        again.
        """
        give_up = min(until, self._runtime.now() + self._patience)
        was_missing = False
        while True:
            answer = await self._query(text, until, first=first, extra=extra)
            if answer.error is None:
                return answer.results
            if answer.error.code in errors.MISSING and not was_missing:
                was_missing, self._schema.is_known = True, False  # dropped meanwhile: they are made again
            elif answer.error.code in errors.AGAIN and self._runtime.now() < give_up:
                await self._runtime.sleep(PAUSE * (0.5 + self._runtime.random()))
            else:
                raise errors.translated(answer.error, self.label)

    async def look(self, text: bytes) -> Sequence[Result]:
        """The same for a query that only looks: no results where there are no tables yet, and none are made."""
        answer = await self._query(text, math.inf, first=False, extra=False, makes=False)
        if answer.error is None:
            return answer.results
        if answer.error.code in errors.MISSING:
            return ()
        raise errors.translated(answer.error, self.label)

    async def _query(self, text: bytes, until: float, *, first: bool, extra: bool, makes: bool = True) -> Answer:
        connection = await self.source.take(until, first=first, extra=extra)
        try:
            if makes and not self._schema.is_known:
                await self._check_schema(connection, until)
            answer = await connection.query(text, until)
            if answer.error is not None:
                await self._check(connection, answer, until)
        except BaseException as error:
            self._discard(connection, error, until)
            raise
        self.source.give(connection)
        return answer

    async def _check_schema(self, connection: Connection, until: float) -> None:
        try:
            await self._schema.check(connection, until)
        except OutcomeUnknown as unknown:  # nothing of the caller's was sent
            connection.close()
            raise errors.unanswered(unknown, self.label) from None

    async def _check(self, connection: Connection, answer: Answer, until: float) -> None:
        """Raise if the connection must not be used again after this error; end a transaction that is still open."""
        assert answer.error is not None  # noqa: S101 - for the type checker
        if errors.is_stale(answer.error):
            connection.close()
            raise errors.translated(answer.error, self.label)
        if answer.results:  # the first statement of several was executed: it may have begun a transaction
            await connection.query(b"ROLLBACK", until)

    def _discard(self, connection: Connection, error: BaseException, until: float) -> None:
        """Close the connection of a call that failed. A caller with little time left proves nothing about others."""
        in_a_hurry = self._runtime.now() >= until and not connection.is_broken()
        self.source.discard(connection, dead=isinstance(error, BackendError) and not in_a_hurry)
        if self.source.is_closed and isinstance(error, BackendError):
            raise ClientClosed(backend=self.label) from None


class Dialer:
    """Makes connections, and has each session the way that the store needs it."""

    def __init__(self, options: MysqlOptions, waits: Waits, runtime: Runtime, *, idle: int = IDLE) -> None:
        self._options = options
        self._waits = waits
        self._runtime = runtime
        self._openings = Openings[Connection](runtime, options.label)
        lock_wait = max(1, math.ceil(options.answer_timeout))
        self._settings = (
            f"SET sql_mode='{SQL_MODE}', time_zone='+00:00', autocommit=1, wait_timeout={idle}, "
            f"innodb_lock_wait_timeout={lock_wait}"
        ).encode()

    async def connected(self, until: float) -> Connection:
        """A connection that nothing was sent on."""
        until = min(until, self._runtime.now() + self._options.connect_timeout)
        return await self._openings.open(
            lambda: dial(self._options, self._waits, self._runtime), lambda late: late.close(), until
        )

    async def prepare(self, connection: Connection, until: float) -> None:
        """Set the session up. Nothing of the caller's was sent yet, so a missing answer is `BackendUnavailable`.

        READ COMMITTED, because it locks fewer rows; a server that logs statements takes no writes at that level, and
        nothing here depends on it.
        """
        label = self._options.label
        try:
            answer = await connection.query(b";".join((self._settings, READ_COMMITTED, WHO)), until)
            if answer.error is not None:
                raise errors.translated(answer.error, label)
            number, logs, log_format = answer.results[-1].rows[0]
            if logs == b"1" and log_format == b"STATEMENT":
                await connection.query(REPEATABLE_READ, until)
        except OutcomeUnknown as unknown:
            raise errors.unanswered(unknown, label) from None
        connection.is_direct = number == b"%d" % connection.number

    def close(self) -> None:
        """End every connecting that is under way."""
        self._openings.close()


class OwnPool(Pool[Connection]):
    """Connections to one server."""

    product = "mysql"

    def __init__(self, options: MysqlOptions, waits: Waits, runtime: Runtime) -> None:
        super().__init__(runtime, options.label, options.connections, options.answer_timeout)
        self._dialer = Dialer(options, waits, runtime)

    async def dedicated(self) -> Connection:
        """A connection outside the limit, which its user keeps for longer, and closes."""
        return await self._open(math.inf)

    async def close(self) -> None:
        """See `Pool`."""
        self._dialer.close()
        await super().close()

    async def _open(self, until: float) -> Connection:
        self._require_open()
        try:
            connection = await self._dialer.connected(until)
            await self._prepared(connection, until)
        except BackendError:
            self._require_open()
            raise
        return connection

    async def _prepared(self, connection: Connection, until: float) -> None:
        self._new.add(connection)
        try:
            await self._dialer.prepare(connection, until)
        except BaseException:
            connection.close()
            raise
        finally:
            self._new.discard(connection)

    def _interrupt(self, connection: Connection) -> None:
        connection.interrupt()
