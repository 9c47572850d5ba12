"""The write lock of SQLite: how long a connection waits for it, and a transaction that begins with it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from leasehold.sql.wires import Wire

__all__ = ["with_busy_timeout", "with_write_lock"]

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


async def with_write_lock(wire: Wire, work: Callable[[], Coroutine[Any, Any, T]], *, opens: bool) -> T:
    """Do the work; if this `opens` the transaction, it begins with the write lock, and an error rolls it back."""
    try:
        if opens:
            await wire.query("BEGIN IMMEDIATE", {})
        return await work()
    except GeneratorExit:
        raise
    except BaseException:
        if opens:  # also if BEGIN itself was cancelled: on a thread of its own it may have gone on
            with suppress(Exception):
                await wire.query("ROLLBACK", {})
        raise
