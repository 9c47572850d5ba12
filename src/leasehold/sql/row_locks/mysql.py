"""Row locks in MySQL and MariaDB: `FOR UPDATE`, `LOCK IN SHARE MODE`, and a limit in whole seconds.

MariaDB takes the limit in the statement (`WAIT n`). MySQL has only a setting of the session for it, which is put back.
A lock that was not to be had in time ends the statement, and not the transaction.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from leasehold.errors import ConfigurationError
from leasehold.sql.errors import mysql_code
from leasehold.sql.row_locks.lock_request import changed_since, deadlock, lock_one, lock_some

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leasehold.sql.row_locks.lock_request import Free, LockRequest
    from leasehold.sql.tables.rows import Row, Rows
    from leasehold.sql.wires import Transaction, Wire

__all__ = ["lock_free", "lock_these"]

_LOCK_WAIT_TIMEOUT, _DEADLOCK, _CHANGED, _NOWAIT = 1205, 1213, 1020, 3572
_THEN = (
    "the transaction can go on without it, unless the server has innodb_rollback_on_timeout; or be run again later, as "
    "retry_on_conflict does"
)


async def lock_these(
    wire: Wire,
    state: Transaction,  # noqa: ARG001 - a port
    rows: Rows,
    keys: Sequence[Mapping[str, Any]],
    request: LockRequest,
) -> list[Row | None]:
    """Lock one row after the other."""
    if request.wait is not None and request.wait != int(request.wait):
        raise ConfigurationError(
            f"MySQL and MariaDB count the wait for a lock in whole seconds, so wait={request.wait:g} s cannot be kept: "
            f"write {math.ceil(request.wait)}, or 0 for none"
        )
    if request.wait is None:
        return [await _lock(wire, rows, key, request, await _words(wire, request)) for key in keys]
    mariadb = await _is_mariadb(wire)
    return [await _lock_in_time(wire, rows, key, request, mariadb=mariadb) for key in keys]


async def lock_free(wire: Wire, rows: Rows, free: Free, request: LockRequest) -> list[Row]:
    """Lock what is not locked."""
    words = await _words(wire, request)
    return await lock_some(wire, rows, free, request, words=words, explain=_explain)


async def _words(wire: Wire, request: LockRequest) -> str:
    if request.skip_locked:
        return _lock_words(request, mariadb=not request.share or await _is_mariadb(wire)) + " SKIP LOCKED"
    return _lock_words(request, mariadb=True)


def _lock_words(request: LockRequest, *, mariadb: bool) -> str:
    if not request.share:
        return " FOR UPDATE"
    return " LOCK IN SHARE MODE" if mariadb else " FOR SHARE"  # MySQL has limits only for its newer form


async def _is_mariadb(wire: Wire) -> bool:
    return "mariadb" in str((await wire.query("SELECT VERSION()", {})).rows[0][0]).lower()


async def _lock_in_time(
    wire: Wire, rows: Rows, key: Mapping[str, Any], request: LockRequest, *, mariadb: bool
) -> Row | None:
    words = _lock_words(request, mariadb=mariadb)
    limit = math.ceil(request.left() or 0)
    if not limit:
        return await _lock(wire, rows, key, request, f"{words} NOWAIT")
    if mariadb:
        return await _lock(wire, rows, key, request, f"{words} WAIT {limit}")
    before = (await wire.query("SELECT @@SESSION.innodb_lock_wait_timeout", {})).rows[0][0]
    await wire.query("SET SESSION innodb_lock_wait_timeout = %(limit)s", {"limit": limit})
    try:
        return await _lock(wire, rows, key, request, words)
    finally:
        await wire.query("SET SESSION innodb_lock_wait_timeout = %(limit)s", {"limit": before})


async def _lock(wire: Wire, rows: Rows, key: Mapping[str, Any], request: LockRequest, words: str) -> Row | None:
    return await lock_one(wire, rows, key, request, words=words, explain=_explain)


def _explain(error: Exception, rows: Rows, key: Mapping[str, Any], request: LockRequest) -> None:
    code = mysql_code(error)
    if code == _CHANGED:
        raise changed_since(rows, key) from error
    if code == _DEADLOCK:
        raise deadlock(rows, key) from error
    if code in (_LOCK_WAIT_TIMEOUT, _NOWAIT):
        limit = "innodb_lock_wait_timeout of this connection" if request.wait is None else f"wait={request.wait:g} s"
        raise request.busy(rows, key, limit, _THEN) from error
