"""Row locks in PostgreSQL: `FOR UPDATE` and `FOR SHARE`, and `lock_timeout` for as long as the call takes.

An error ends the whole transaction there, unless it happens behind a savepoint. So a call with a limit sets one: when
the limit is reached, the locks of the call and its setting are taken back, and the transaction can go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.sql.errors import sqlstate
from leasehold.sql.row_locks.lock_request import changed_since, deadlock, lock_one, lock_some
from leasehold.sql.savepoints import behind_a_savepoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leasehold.sql.row_locks.lock_request import Free, LockRequest
    from leasehold.sql.tables.rows import Row, Rows
    from leasehold.sql.wires import Transaction, Wire

__all__ = ["lock_free", "lock_these"]

# limit in milliseconds -> what it was
_SET = """
SELECT pg_catalog.current_setting('lock_timeout'), pg_catalog.set_config('lock_timeout', %(limit)s, true)
"""
_RESTORE = "SELECT pg_catalog.set_config('lock_timeout', %(limit)s, true)"


async def lock_these(
    wire: Wire,
    state: Transaction,  # noqa: ARG001 - a port
    rows: Rows,
    keys: Sequence[Mapping[str, Any]],
    request: LockRequest,
) -> list[Row | None]:
    """Lock one row after the other."""
    if request.wait is None:
        return [await _lock(wire, rows, key, request, _words(request)) for key in keys]
    return await behind_a_savepoint(wire, lambda: _lock_in_time(wire, rows, keys, request))


async def lock_free(wire: Wire, rows: Rows, free: Free, request: LockRequest) -> list[Row]:
    """Lock what is not locked."""
    return await lock_some(wire, rows, free, request, words=_words(request), explain=_explain)


async def _lock_in_time(
    wire: Wire, rows: Rows, keys: Sequence[Mapping[str, Any]], request: LockRequest
) -> list[Row | None]:
    found: list[Row | None] = []
    before: str | None = None
    for key in keys:
        limit = int((request.left() or 0) * 1000)
        if limit:  # 0 would mean: no limit
            was = (await wire.query(_SET, {"limit": str(limit)})).rows[0][0]
            before = was if before is None else before
        found.append(await _lock(wire, rows, key, request, _words(request) + ("" if limit else " NOWAIT")))
    if before is not None:
        await wire.query(_RESTORE, {"limit": before})
    return found


def _words(request: LockRequest) -> str:
    return (" FOR SHARE" if request.share else " FOR UPDATE") + (" SKIP LOCKED" if request.skip_locked else "")


async def _lock(wire: Wire, rows: Rows, key: Mapping[str, Any], request: LockRequest, words: str) -> Row | None:
    return await lock_one(wire, rows, key, request, words=words, explain=_explain)


def _explain(error: Exception, rows: Rows, key: Mapping[str, Any], request: LockRequest) -> None:
    code = sqlstate(error)
    if code == "40001":
        raise changed_since(rows, key) from error
    if code == "40P01":
        raise deadlock(rows, key) from error
    if code == "55P03":
        if request.wait is None:
            limit, then = "the lock_timeout of this connection", "roll back and try again, as retry_on_conflict does"
        else:
            limit = f"wait={request.wait:g} s"
            then = "the transaction can go on without it, or be run again later, as retry_on_conflict does"
        raise request.busy(rows, key, limit, then) from error
