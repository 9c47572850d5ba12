"""One connection, and one question at a time on it. It decides nothing about locks and never asks twice.

psycopg makes the connection (addresses, TLS, authentication); the questions go straight to libpq through
`psycopg.pq`. A cursor would cost more than the whole rest of a call, and would not tell a request that was sent from
one that was not. How to wait for a socket is all that differs between threads and asyncio: see `wires`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
from psycopg import pq

from leasehold.backends.postgres import trouble
from leasehold.errors import BackendUnavailable, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from psycopg import BaseConnection
    from psycopg.pq.abc import PGconn, PGresult

    from leasehold.backends.postgres.statements import Statement
    from leasehold.spi import Runtime

__all__ = ["GOOD", "Line", "Memory", "Wire", "open_line"]

PREPARE_AT = 3  # a statement is prepared when it is used for this time: a command that runs once should not pay for it
GOOD = frozenset({pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK})


class Wire(Protocol):
    """How a runtime connects and waits."""

    async def connect(
        self, parameters: dict[str, object], seconds: float, is_over: Callable[[], bool]
    ) -> BaseConnection[object]:
        """Make a connection; `TimeoutError` if the time is over first, or `is_over` says that it is of no use."""

    async def readable(self, line: Line, seconds: float) -> bool:
        """Wait until there is something to read; False if the time was over first."""

    async def writable(self, line: Line, seconds: float) -> bool:
        """Wait until there is room to write; False if the time was over first."""

    async def watch(self, line: Line, seconds: float) -> bool:
        """The same as `readable`, for one that looks on while others use the line."""

    def is_readable(self, line: Line) -> bool:
        """Whether there is something to read now."""

    def interrupt(self, line: Line) -> None:
        """End a wait for this line, from anywhere; it is of no use afterwards."""


class Memory:
    """What is known of a session: it outlives the line where a connection is lent again and again."""

    __slots__ = ("is_direct", "prepared", "uses")

    def __init__(self) -> None:
        self.is_direct = False  # known to be without a pooler in between that changes servers from call to call
        self.uses: dict[bytes, int] = {}
        self.prepared: set[bytes] = set()


class Line:
    """One connection that is used by one call at a time."""

    __slots__ = (
        "__weakref__",
        "_label",
        "_runtime",
        "_timeout",
        "_wire",
        "connection",
        "idle_since",
        "memory",
        "pgconn",
        "poller",
        "slot",
    )

    def __init__(
        self, connection: BaseConnection[object], wire: Wire, runtime: Runtime, label: str, timeout: float
    ) -> None:
        self.connection = connection  # kept, because psycopg closes what is not referred to any more
        self.pgconn: PGconn = connection.pgconn
        self.poller: Any = None  # the wire's own
        self.idle_since = 0.0
        self.slot: Any = None  # what its pool keeps with it
        self.memory = Memory()
        self._wire = wire
        self._runtime = runtime
        self._label = label
        self._timeout = timeout

    @property
    def is_direct(self) -> bool:
        """Whether the session is the same from call to call."""
        return self.memory.is_direct

    async def ask(self, statement: Statement, values: Sequence[bytes | None], until: float = math.inf) -> PGresult:
        """Send it and wait for the answer, which may be an error of the server's; not beyond `until`.

        Raises `OutcomeUnknown` when none came; then, and whenever anything else is raised, the line is of no use.
        """
        if statement.hot and self.memory.is_direct and await self._prepare(statement, until):
            send, what = self.pgconn.send_query_prepared, (statement.name, values, statement.formats)
            return await self._exchange(until, send, *what)
        return await self._exchange(
            until, self.pgconn.send_query_params, statement.text, values, statement.types, statement.formats
        )

    async def run_script(self, script: bytes, until: float = math.inf) -> PGresult:
        """Run several statements as one transaction; the answer is the last one's, or the error."""
        return await self._exchange(until, self.pgconn.send_query, script)

    async def greet(self, statement: Statement, *, own: bool, until: float = math.inf) -> None:
        """Learn whether a pooler is in between, and have transactions of our own connections read what is committed.

        Nothing of the caller's is sent yet, so it raises `BackendUnavailable` where there is no answer.
        """
        try:
            await self._greet(statement, until, own=own)
        except OutcomeUnknown as unanswered:
            raise BackendUnavailable(str(unanswered), backend=self._label) from None

    async def _greet(self, statement: Statement, until: float, *, own: bool) -> None:
        answer = await self.ask(statement, (), until)
        if answer.status not in GOOD:
            raise trouble.translated(answer, self._label)
        process, isolation = answer.get_value(0, 0), answer.get_value(0, 1)
        self.memory.is_direct = process == b"%d" % self.pgconn.backend_pid
        if own and self.is_direct and isolation != b"read committed":
            await self.run_script(b"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED", until)

    def is_usable(self) -> bool:
        """Whether the server has not ended the connection while nobody used it: nothing is sent to find out."""
        pgconn = self.pgconn
        try:
            while self._wire.is_readable(self):  # a farewell, and then the end; or a message for somebody else
                pgconn.consume_input()
                while pgconn.notifies() is not None:
                    pass
        except psycopg.Error:
            return False
        return pgconn.status == pq.ConnStatus.OK and pgconn.transaction_status == pq.TransactionStatus.IDLE

    async def recovers(self, until: float = math.inf) -> bool:
        """Read to its end what an interrupted call left behind; False if the connection has failed."""
        pgconn = self.pgconn
        if pgconn.status == pq.ConnStatus.OK and pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
            try:
                await self._receive(min(self._runtime.now() + self._timeout, until))
            except OutcomeUnknown as unanswered:
                if pgconn.status == pq.ConnStatus.OK:  # nothing of the new request was sent
                    raise BackendUnavailable(str(unanswered), backend=self._label) from None
        return self.is_usable()

    def is_broken(self) -> bool:
        """Whether the connection has failed."""
        return self.pgconn.status != pq.ConnStatus.OK

    def view(self) -> Line:
        """The same line for one call, for somebody else to hold."""
        line = Line(self.connection, self._wire, self._runtime, self._label, self._timeout)
        line.memory, line.poller = self.memory, self.poller
        return line

    def close(self) -> None:
        """Let go of the connection; what is under way may still be applied."""
        self.pgconn.finish()

    def forget_prepared(self) -> None:
        """Prepare nothing in this session any more."""
        self.memory.is_direct = False

    async def _prepare(self, statement: Statement, until: float) -> bool:
        name, memory = statement.name, self.memory
        if name in memory.prepared:
            return True
        uses = memory.uses[name] = memory.uses.get(name, 0) + 1
        if uses < PREPARE_AT:
            return False
        answer = await self._exchange(until, self.pgconn.send_prepare, name, statement.text, statement.types)
        if answer.status not in GOOD:
            memory.is_direct = False
            return False
        memory.prepared.add(name)
        return True

    async def _exchange(self, until: float, send: Callable[..., None], *what: object) -> PGresult:
        deadline = min(self._runtime.now() + self._timeout, until)
        try:
            send(*what)
            return await self._receive(deadline)
        except psycopg.Error as error:
            raise trouble.lost(error, self._label) from None

    async def _receive(self, deadline: float) -> PGresult:
        """See the request out and the answer in: the last one that comes; an error is the last of its transaction."""
        pgconn, answer = self.pgconn, None
        try:
            while pgconn.flush():
                if not await self._wire.writable(self, deadline - self._runtime.now()):
                    raise trouble.lost(None, self._label)
            while True:
                while pgconn.is_busy():
                    if not await self._wire.readable(self, deadline - self._runtime.now()):
                        raise trouble.lost(None, self._label)
                    pgconn.consume_input()
                more = pgconn.get_result()
                if more is None:
                    break
                answer = more
        except psycopg.Error as error:
            raise trouble.lost(error, self._label) from None
        if answer is None:
            raise trouble.lost(None, self._label)
        return answer


async def open_line(
    wire: Wire,
    parameters: dict[str, object],
    runtime: Runtime,
    label: str,
    timeout: float,
    *,
    until: float = math.inf,
    is_over: Callable[[], bool] = lambda: False,
) -> Line:
    """Connect; raises `BackendUnavailable` or `BackendRejected`, for nothing was sent."""
    try:
        connection = await wire.connect(parameters, until - runtime.now(), is_over)
    except psycopg.Error as error:
        raise trouble.connect_failed(error, label) from None
    except TimeoutError:
        raise BackendUnavailable(f"{label} cannot be reached in time", backend=label) from None
    except OSError as error:
        raise BackendUnavailable(f"{label} cannot be reached: {error}", backend=label) from None
    return Line(connection, wire, runtime, label, timeout)
