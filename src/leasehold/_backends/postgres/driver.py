"""What the store needs of a connection, whatever the driver: `connection` has it over psycopg, `asyncpg_connection`.

Answers are read as libpq gives them: rows and columns by number, each value as the text that the server writes, and the
fields of an error by their letter in PostgreSQL's protocol.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

from leasehold._backends.postgres import errors
from leasehold.errors import BackendUnavailable, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._backends.postgres.statements import Statement

__all__ = ["GOOD", "AnyConnection", "Rows", "SessionFacts", "greet"]

GOOD = frozenset({1, 2})  # of `status`: a command was executed, or rows were given


class Rows(Protocol):
    """An answer of the server; psycopg's own result is one."""

    @property
    def status(self) -> int:
        """One of `GOOD`; anything else is an error."""

    @property
    def ntuples(self) -> int:
        """How many rows there are."""

    @property
    def nfields(self) -> int:
        """How many columns there are."""

    @property
    def error_message(self) -> bytes:
        """The message of an error."""

    def fname(self, column_number: int, /) -> bytes | None:
        """The name of a column."""

    def get_value(self, row_number: int, column_number: int, /) -> bytes | None:
        """A value."""

    def error_field(self, fieldcode: Any, /) -> bytes | None:
        """One of the fields of an error, by the number of its letter."""


class SessionFacts:
    """What is known of a session of the server; with an adopted pool it outlives the connection of one loan."""

    __slots__ = ("is_direct", "prepared", "uses")

    def __init__(self) -> None:
        self.is_direct = False  # known to have no pooler in between that changes servers from call to call
        self.uses: dict[bytes, int] = {}
        self.prepared: set[bytes] = set()


class AnyConnection(Protocol):
    """One connection, used by one call at a time. It decides nothing about locks and never sends a request twice."""

    facts: SessionFacts
    slot: Any

    @property
    def driver_connection(self) -> Any:
        """The driver's own, which lives as long as the session."""

    @property
    def is_direct(self) -> bool:
        """Whether the session is the same from call to call."""

    async def execute(self, statement: Statement, values: Sequence[bytes | None], until: float = math.inf) -> Rows:
        """Send one statement and wait for its answer, at the longest until `until`; the answer may be a server's error.

        Raises `OutcomeUnknown` when no answer came. After that, and after any other exception, the connection must be
        closed: the next answer on it belongs to this call.
        """

    async def run_script(self, script: bytes, until: float = math.inf) -> Rows:
        """Run several statements as one transaction; the answer is that of the last one, or the error."""

    async def greet(self, statement: Statement, *, own: bool, until: float = math.inf) -> None:
        """Find out whether a pooler is in between, and have transactions of our `own` connections at READ COMMITTED.

        Nothing of the caller's was sent yet, so a missing answer is `BackendUnavailable`.
        """

    def is_usable(self) -> bool:
        """Whether the server has not ended the connection while it was idle. Sends nothing."""

    def is_broken(self) -> bool:
        """Whether the connection has failed or was closed."""

    def forget_prepared(self) -> None:
        """Prepare nothing in this session any more."""

    async def listen(self, channel: bytes) -> None:
        """Receive the notifications of a channel from now on."""

    async def notified(self, seconds: float) -> bool:
        """Wait until something has arrived, or the connection has ended; False if the time is over first."""

    def notifications(self) -> list[str]:
        """The contents of those that have arrived by now. Raises `BackendUnavailable` when it has ended."""

    def interrupt(self) -> None:
        """End whatever waits for this connection, from any thread; it cannot be used afterwards."""

    def close(self) -> None:
        """Close it; a request that is under way may still be applied."""


async def greet(
    connection: AnyConnection, statement: Statement, process: int, label: str, *, own: bool, until: float
) -> None:
    """`AnyConnection.greet` for both drivers; `process` is the server's process, by its message at the connect."""
    try:
        answer = await connection.execute(statement, (), until)
        if answer.status not in GOOD:
            raise errors.translated(answer, label)
        connection.facts.is_direct = answer.get_value(0, 0) == b"%d" % process
        if own and connection.is_direct and answer.get_value(0, 1) != b"read committed":
            await connection.run_script(
                b"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED", until
            )
    except OutcomeUnknown as unanswered:
        raise BackendUnavailable(str(unanswered), backend=label) from None
