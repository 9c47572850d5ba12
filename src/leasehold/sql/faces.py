"""One coroutine over a wire, for both faces: finished at once on a connection that blocks, awaited on an async one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from leasehold._runtimes.threads import run
from leasehold.errors import ConfigurationError
from leasehold.sql.wires import async_twin, wire_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from leasehold.sql.wires import Wire

__all__ = ["call", "call_async", "call_blocking"]

T = TypeVar("T")


def call_blocking(tx: Any, work: Callable[[Wire], Coroutine[Any, Any, T]], verb: str) -> T:
    """Do it now; `verb` is the name under which the other face is refused."""
    if async_twin(tx) is None:
        wire = wire_of(tx)
        if not wire.is_async:
            return run(work(wire))
    raise ConfigurationError(f"a {type(tx).__name__} is async: write await {verb}_async(tx, ...)")


async def call_async(tx: Any, work: Callable[[Wire], Coroutine[Any, Any, T]], verb: str) -> T:
    """Await it; a connection that blocks is refused, for it would stop the event loop."""
    if async_twin(tx) is None and not wire_of(tx).is_async:
        raise ConfigurationError(f"a {type(tx).__name__} is not async: write {verb}(tx, ...)")
    return await call(tx, work)


async def call(tx: Any, work: Callable[[Wire], Coroutine[Any, Any, T]]) -> T:
    """For code that was given the right connection for its face."""
    twin = async_twin(tx)
    if twin is not None:
        return cast("T", await twin.run_sync(lambda blocking: run(work(wire_of(blocking)))))
    return await work(wire_of(tx))
