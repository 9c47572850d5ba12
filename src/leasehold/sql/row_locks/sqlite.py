"""Row locks in SQLite, which has none: the write lock of the whole file, as `BEGIN IMMEDIATE` takes it.

That keeps more writers out than was asked for, and no fewer. What would need real row locks is refused.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any, NoReturn

from leasehold.errors import ConfigurationError
from leasehold.sql.errors import sqlite_code
from leasehold.sql.row_locks.lock_request import changed_since
from leasehold.sql.sqlite_busy import with_busy_timeout
from leasehold.sql.wires import Transaction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leasehold.sql.row_locks.lock_request import Free, LockRequest
    from leasehold.sql.tables.rows import Row, Rows
    from leasehold.sql.wires import Wire

__all__ = ["lock_free", "lock_these"]


async def lock_these(
    wire: Wire, state: Transaction, rows: Rows, keys: Sequence[Mapping[str, Any]], request: LockRequest
) -> list[Row | None]:
    """Take the write lock of the file, then read the rows."""
    if request.share:
        raise ConfigurationError(
            "SQLite has no row locks, and its one write lock cannot be shared: leave share= out, which keeps every "
            "other writer out, or use PostgreSQL, MySQL or MariaDB"
        )
    if request.skip_locked:
        _refuse_to_skip()
    if not keys:
        return []
    try:
        await with_busy_timeout(wire, request.wait, lambda: _take(wire, state, rows))
    except Exception as error:
        _explain(error, rows, keys, request)
        raise
    return [rows.one(rows.read(await wire.query(rows.select(key), rows.bound("key", key))), key) for key in keys]


async def lock_free(wire: Wire, rows: Rows, free: Free, request: LockRequest) -> NoReturn:  # noqa: ARG001 - a port
    """There is nothing to pass over."""
    _refuse_to_skip()


def _refuse_to_skip() -> NoReturn:
    raise ConfigurationError(
        "SQLite has no row locks, so there are no locked rows to skip: its one write lock is for the whole file. Use "
        "lock_row or lock_rows without skip_locked, or PostgreSQL, MySQL or MariaDB"
    )


async def _take(wire: Wire, state: Transaction, rows: Rows) -> None:
    if state is Transaction.OPENS:
        await wire.query("BEGIN IMMEDIATE", {})
    else:  # a statement that may write takes the lock, also when it finds nothing to write
        await wire.query(f"DELETE FROM {rows.name} WHERE 0", {})  # noqa: S608 - a quoted name


def _explain(error: Exception, rows: Rows, keys: Sequence[Mapping[str, Any]], request: LockRequest) -> None:
    code = sqlite_code(error)
    if code == sqlite3.SQLITE_BUSY_SNAPSHOT:
        raise changed_since(rows, keys[0]) from error
    if code is not None and code & 0xFF == sqlite3.SQLITE_BUSY:
        limit = "the connection's own busy timeout" if request.wait is None else f"wait={request.wait:g} s"
        raise request.busy(
            rows,
            keys[0],
            f"{limit}; SQLite has one write lock for the whole file, and another connection is writing to it",
            "roll back and try again, as retry_on_conflict does, or wait longer",
        ) from error
