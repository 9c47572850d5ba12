"""Cleaning away what is not needed any more, by a worker on a connection that is idle anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from leasehold._backends.postgres.statements import number

if TYPE_CHECKING:
    from leasehold._backends.postgres.driver import AnyConnection
    from leasehold._backends.postgres.statements import Statements
    from leasehold.spi import Runtime

__all__ = ["Cleaning", "Maintenance"]

CLEAN_EVERY = 60.0
CLEAN_SLICE = 1000  # rows in one request
CLEAN_PAUSE = 1.0  # the least time between two requests, whichever client sends them


class Maintenance(Protocol):
    """A small request that is due now and then, for a connection that is idle anyway."""

    def is_due(self) -> bool:
        """True once per interval; the caller that gets True must run it."""

    async def run(self, connection: AnyConnection) -> None:
        """Send the request. If it fails, the next interval is soon enough."""


class Cleaning:
    """Has the database remove a slice of the rows that are not needed any more, once in a while."""

    def __init__(self, statements: Statements, runtime: Runtime) -> None:
        self._statement = statements.clean
        self._runtime = runtime
        self._due = runtime.now() + CLEAN_EVERY * runtime.random()

    def is_due(self) -> bool:
        now = self._runtime.now()
        if now < self._due:
            return False
        self._due = now + CLEAN_EVERY
        return True

    async def run(self, connection: AnyConnection) -> None:
        await connection.execute(self._statement, (b"%d" % CLEAN_SLICE, number(CLEAN_PAUSE)))
