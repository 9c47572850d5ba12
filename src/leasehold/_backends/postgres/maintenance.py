"""Work in the background: how a worker is started, and the cleaning that a worker does on an idle connection."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from leasehold._backends.postgres.statements import number

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType

    from leasehold._backends.postgres.driver import AnyConnection
    from leasehold._backends.postgres.statements import Statements
    from leasehold.spi import Runtime, Task

__all__ = ["Cleaning", "Maintenance", "start"]

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


def start(runtime: Runtime, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> Task:
    """Run a coroutine beside the caller; it must handle its own errors. A signal handler may raise at any point of it.

    A coroutine that is made and never started is reported by the interpreter when it is collected, wherever that
    happens to be. This one is made only when its first step is taken.
    """
    return runtime.spawn(_Late(work), name)


class _Late(Coroutine[Any, Any, None]):
    def __init__(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._make = make
        self._made: Coroutine[Any, Any, None] | None = None

    def send(self, value: Any) -> Any:
        if self._made is None:
            self._made = self._make()
        return self._made.send(value)

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        value: BaseException | object = None,
        trace: TracebackType | None = None,
    ) -> Any:
        if self._made is None:
            self._made = self._make()
        return self._made.throw(kind, value, trace)  # type: ignore[arg-type]  # passed on as it came

    def close(self) -> None:
        if self._made is not None:
            self._made.close()

    def __await__(self) -> Generator[Any, Any, None]:
        if self._made is None:
            self._made = self._make()
        return self._made.__await__()
