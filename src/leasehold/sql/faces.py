"""Both faces of one coroutine over a wire: for connections that block, and for those that are awaited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold._runtimes.threads import run
from leasehold.errors import ConfigurationError
from leasehold.sql.wires import async_twin, wire_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import TypeVar

    from leasehold.sql.wires import Wire

    T = TypeVar("T")

__all__ = ["awaited", "blocking"]


def blocking(tx: Any, other: str, steps: Callable[[Wire], Coroutine[Any, Any, T]]) -> T:
    """Run it to its end; `other` is the name of the face for asyncio."""
    if async_twin(tx) is None:
        wire = wire_of(tx)
        if not wire.is_async:
            return run(steps(wire))
    raise ConfigurationError(f"a {type(tx).__name__} is async: write await {other}(tx, ...)")


async def awaited(tx: Any, other: str, steps: Callable[[Wire], Coroutine[Any, Any, T]]) -> T:
    """Await it; `other` is the name of the face that blocks."""
    twin = async_twin(tx)
    if twin is not None:
        result: T = await twin.run_sync(lambda inner: run(steps(wire_of(inner))))
        return result
    wire = wire_of(tx)
    if not wire.is_async:
        raise ConfigurationError(f"a {type(tx).__name__} is not async: write {other}(tx, ...)")
    return await steps(wire)
