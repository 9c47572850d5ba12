"""One connection, one request at a time. It decides nothing about locks and never sends a request twice.

psycopg makes the connection (addresses, TLS, authentication); the requests go straight to libpq through `psycopg.pq`. A
cursor would cost more than the rest of a call, and would not show whether a request was sent. How to
wait for a socket is all that differs between threads and asyncio: see `wire`.

Statements are prepared at their third use, if the session is known to stay the same from call to call. Behind a pooler
that changes servers a prepared statement would be missing half of the time.
"""

from __future__ import annotations

import math
import select
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import pq

from leasehold._backends.postgres import errors
from leasehold._backends.postgres.driver import GOOD, SessionFacts, greet
from leasehold.errors import BackendUnavailable, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from psycopg import BaseConnection
    from psycopg.pq.abc import PGconn, PGresult

    from leasehold._backends.postgres.statements import Statement
    from leasehold._backends.postgres.wire import Wire
    from leasehold.spi import Runtime

__all__ = ["Connection", "open_connection", "poller_for"]

PREPARE_AT = 3  # the use at which a statement is prepared: a command that runs once should not pay for it


class Connection:
    """One connection, used by one call at a time."""

    __slots__ = (
        "__weakref__",
        "_label",
        "_runtime",
        "_timeout",
        "_wire",
        "driver_connection",
        "facts",
        "idle_since",
        "pgconn",
        "poller",
        "slot",
    )

    def __init__(
        self,
        driver_connection: BaseConnection[object],
        wire: Wire,
        runtime: Runtime,
        label: str,
        timeout: float,
        *,
        poller: Any = None,
    ) -> None:
        self.driver_connection = driver_connection  # referred to, because psycopg closes what is collected
        self.pgconn: PGconn = driver_connection.pgconn
        self.poller = poller or poller_for(self.pgconn)
        self.idle_since = 0.0
        self.slot: Any = None  # belongs to the pool that it came from
        self.facts = SessionFacts()
        self._wire = wire
        self._runtime = runtime
        self._label = label
        self._timeout = timeout

    @property
    def is_direct(self) -> bool:
        """Whether the session is the same from call to call."""
        return self.facts.is_direct

    async def execute(self, statement: Statement, values: Sequence[bytes | None], until: float = math.inf) -> PGresult:
        """Send one statement and wait for its answer, at the longest until `until`; the answer may be a server's error.

        Raises `OutcomeUnknown` when no answer came. After that, and after any other exception, the connection must be
        closed: the next answer on it belongs to this call.
        """
        facts = self.facts
        if (
            statement.hot
            and facts.is_direct
            and (statement.name in facts.prepared or await self._prepare(statement, until))
        ):
            return await self._exchange(
                until, self.pgconn.send_query_prepared, statement.name, values, statement.formats
            )
        return await self._exchange(
            until, self.pgconn.send_query_params, statement.text, values, statement.types, statement.formats
        )

    async def run_script(self, script: bytes, until: float = math.inf) -> PGresult:
        """Run several statements as one transaction; the answer is that of the last one, or the error."""
        return await self._exchange(until, self.pgconn.send_query, script)

    async def greet(self, statement: Statement, *, own: bool, until: float = math.inf) -> None:
        await greet(self, statement, self.pgconn.backend_pid, self._label, own=own, until=until)

    def is_usable(self) -> bool:
        """Whether the server has not ended the connection while it was idle. Sends nothing."""
        pgconn = self.pgconn
        try:
            while self.poller.poll(0):  # the error that ends the session and then the end, or a notification
                pgconn.consume_input()
                while pgconn.notifies() is not None:
                    pass
        except psycopg.Error:
            return False
        return pgconn.status == pq.ConnStatus.OK and pgconn.transaction_status == pq.TransactionStatus.IDLE

    async def recovers(self, until: float = math.inf) -> bool:
        """Read the answer that an interrupted call left behind; False if the connection has failed."""
        pgconn = self.pgconn
        if pgconn.status == pq.ConnStatus.OK and pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
            try:
                await self._receive(min(self._runtime.now() + self._timeout, until))
            except OutcomeUnknown as unanswered:
                if pgconn.status == pq.ConnStatus.OK:  # nothing of the new request was sent
                    raise BackendUnavailable(str(unanswered), backend=self._label) from None
        return self.is_usable()

    def is_owed(self) -> bool:
        """Whether the answer to a request has not been read."""
        return self.pgconn.transaction_status == pq.TransactionStatus.ACTIVE

    def is_broken(self) -> bool:
        """Whether the connection has failed or was closed."""
        return self.pgconn.status != pq.ConnStatus.OK

    def view(self) -> Connection:
        """A second object for the same connection and session, to be referred to by one call alone."""
        view = Connection(
            self.driver_connection, self._wire, self._runtime, self._label, self._timeout, poller=self.poller
        )
        view.facts = self.facts
        return view

    def close(self) -> None:
        """Close it; a request that is under way may still be applied."""
        self.pgconn.finish()

    def forget_prepared(self) -> None:
        """Prepare nothing in this session any more."""
        self.facts.is_direct = False

    async def listen(self, channel: bytes) -> None:
        answer = await self.run_script(b"LISTEN " + channel)
        if answer.status not in GOOD:
            raise errors.translated(answer, self._label)

    async def notified(self, seconds: float) -> bool:
        try:
            return await self._wire.readable(self, seconds)
        except psycopg.Error as error:
            raise errors.not_listening(error, self._label) from None

    def notifications(self) -> list[str]:
        contents: list[str] = []
        try:
            self.pgconn.consume_input()
            while (notification := self.pgconn.notifies()) is not None:
                contents.append(notification.extra.decode(errors="replace"))
        except psycopg.Error as error:
            raise errors.not_listening(error, self._label) from None
        return contents

    def interrupt(self) -> None:
        self._wire.interrupt(self)

    async def _prepare(self, statement: Statement, until: float) -> bool:
        name, facts = statement.name, self.facts
        uses = facts.uses[name] = facts.uses.get(name, 0) + 1
        if uses < PREPARE_AT:
            return False
        answer = await self._exchange(until, self.pgconn.send_prepare, name, statement.text, statement.types)
        if answer.status not in GOOD:
            facts.is_direct = False
            return False
        facts.prepared.add(name)
        return True

    async def _exchange(self, until: float, send: Callable[..., None], *what: object) -> PGresult:
        deadline = min(self._runtime.now() + self._timeout, until)
        try:
            send(*what)
            return await self._receive(deadline)
        except psycopg.Error as error:
            raise errors.lost(error, self._label) from None

    async def _receive(self, deadline: float) -> PGresult:
        """Flush the request and read the answer: the last result, for an error is the last one of its transaction."""
        pgconn, answer = self.pgconn, None
        try:
            while pgconn.flush():
                if not await self._wire.writable(self, deadline - self._runtime.now()):
                    raise errors.lost(None, self._label)
            while True:
                while pgconn.is_busy():
                    if not await self._wire.readable(self, deadline - self._runtime.now()):
                        raise errors.lost(None, self._label)
                    pgconn.consume_input()
                more = pgconn.get_result()
                if more is None:
                    break
                answer = more
        except psycopg.Error as error:
            raise errors.lost(error, self._label) from None
        if answer is None:
            raise errors.lost(None, self._label)
        return answer


async def open_connection(
    wire: Wire,
    parameters: dict[str, object],
    runtime: Runtime,
    label: str,
    timeout: float,
    *,
    until: float = math.inf,
    is_over: Callable[[], bool] = lambda: False,
) -> Connection:
    """Connect. Raises `BackendUnavailable` or `BackendRejected`, for nothing was sent."""
    try:
        made = await wire.connect(parameters, until - runtime.now(), is_over)
        return Connection(made, wire, runtime, label, timeout)
    except psycopg.Error as error:
        raise errors.connect_failed(error, label) from None
    except TimeoutError:
        raise BackendUnavailable(
            f"{label} cannot be reached in time; check the address, the network and whether the server runs",
            backend=label,
        ) from None
    except OSError as error:
        raise BackendUnavailable(f"{label} cannot be reached: {error}", backend=label) from None


def poller_for(pgconn: PGconn) -> Any:
    """An object whose `poll(milliseconds)` waits until there is something to read; for one thread at a time."""
    if not hasattr(select, "poll"):
        return _SelectPoller(pgconn.socket)
    poller = select.poll()
    poller.register(pgconn.socket, select.POLLIN)
    return poller


class _SelectPoller:
    """The same where the system has no `poll`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptors = [descriptor]

    def poll(self, milliseconds: float) -> Sequence[int]:
        return select.select(self._descriptors, [], [], milliseconds / 1000)[0]
