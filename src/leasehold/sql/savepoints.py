"""A piece of a PostgreSQL transaction that can fail without ending the whole of it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from leasehold.sql.wires import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from leasehold.sql.wires import Wire

__all__ = ["behind_a_savepoint"]

T = TypeVar("T")
_NAME = "leasehold_piece"


async def behind_a_savepoint(wire: Wire, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Do the work; what it did, its locks and settings included, is taken back if it fails.

    Outside a transaction there is nothing to keep, and no savepoint.
    """
    if wire.transaction() is Transaction.AUTOCOMMIT:
        return await work()
    await wire.query(f"SAVEPOINT {_NAME}", {})
    try:
        done = await work()
    except Exception:
        with suppress(Exception):  # on a connection that is lost; the first error says so
            await wire.query(f"ROLLBACK TO SAVEPOINT {_NAME}", {})
            await wire.query(f"RELEASE SAVEPOINT {_NAME}", {})
        raise
    await wire.query(f"RELEASE SAVEPOINT {_NAME}", {})
    return done
