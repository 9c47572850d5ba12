"""How long a connection of SQLite waits for another one that writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from leasehold.sql.wires import Wire

__all__ = ["with_busy_timeout"]

T = TypeVar("T")


async def with_busy_timeout(wire: Wire, wait: float | None, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Do the work; `wait` replaces the busy timeout of the connection meanwhile, and None leaves it."""
    if wait is None:
        return await work()
    before = (await wire.query("PRAGMA busy_timeout", {})).rows[0][0]
    await wire.query(f"PRAGMA busy_timeout = {int(wait * 1000)}", {})
    try:
        return await work()
    finally:
        await wire.query(f"PRAGMA busy_timeout = {int(before)}", {})
