"""Work beside the caller's, started so that a signal handler may raise at any point of the start.

A coroutine that is made and never started is reported by the interpreter when it is collected, wherever that happens
to be. This one is made only when its first step is taken.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType

    from leasehold.spi import Runtime, Task

__all__ = ["start"]


def start(runtime: Runtime, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> Task:
    """Run it beside the caller. It must handle its own errors."""
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
