"""Single requests over whatever lends connections: makes missing tables, and turns errors of the server into ours."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

from leasehold._backends.postgres import errors
from leasehold._backends.postgres.driver import GOOD
from leasehold.errors import BackendError, ClientClosed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._backends.postgres.driver import AnyConnection, Rows
    from leasehold._backends.postgres.schema import Schema
    from leasehold._backends.postgres.statements import Statement
    from leasehold.spi import Runtime

__all__ = ["Executor", "Source"]


class Source(Protocol):
    """Where connections for single requests come from; it takes back those that it has lent."""

    is_closed: bool

    async def take(self, until: float = math.inf, *, first: bool = False, extra: bool = False) -> AnyConnection:
        """A connection for one call, by `until`.

        `first`: ahead of all calls without it that wait. `extra`: may go beyond the limit by one connection.
        """

    def give(self, connection: Any) -> None:
        """The call came to its end: the connection may be used again."""

    def discard(self, connection: Any, *, dead: bool) -> None:
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
    ) -> Rows:
        """One request, one round trip, over by `until`; for `first` and `extra` see `Source`.

        `repeat`: a request that the server refused because the tables or a prepared statement are missing was not
        applied; it is sent once more after they are made.
        """
        answer = await self._answer(statement, values, until, first=first, extra=extra)
        if answer.status in GOOD:
            return answer
        code = errors.sqlstate(answer)
        if repeat and (code in errors.UNPREPARED or (code in errors.MISSING and await self._make_schema(until))):
            return await self.execute(statement, values, until, first=first, extra=extra, repeat=False)
        raise errors.translated(answer, self.label)

    async def look(self, statement: Statement, values: Sequence[bytes | None]) -> Rows | None:
        """The same for a request that only looks: None where there are no tables yet, and none are made."""
        answer = await self._answer(statement, values, math.inf)
        if answer.status in GOOD:
            return answer
        return None if errors.sqlstate(answer) in errors.NO_TABLES else await self.execute(statement, values)

    async def _answer(
        self,
        statement: Statement,
        values: Sequence[bytes | None],
        until: float,
        *,
        first: bool = False,
        extra: bool = False,
    ) -> Rows:
        connection = await self.source.take(until, first=first, extra=extra)
        try:
            answer = await connection.execute(statement, values, until)
            if answer.status not in GOOD:
                self._check(connection, answer)
        except BaseException as error:
            self._discard(connection, error, until)
            raise
        self.source.give(connection)
        return answer

    def _discard(self, connection: AnyConnection, error: BaseException, until: float) -> None:
        """Close the connection of a call that failed. A caller with little time left proves nothing about others."""
        in_a_hurry = self._runtime.now() >= until and not connection.is_broken()
        self.source.discard(connection, dead=isinstance(error, BackendError) and not in_a_hurry)
        if self.source.is_closed and isinstance(error, BackendError):
            raise ClientClosed(backend=self.label) from None

    def _check(self, connection: AnyConnection, answer: Rows) -> None:
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
