"""The guard in SQLite.

A transaction that has read before the guard is refused exactly when that does harm: SQLite keeps a reader's snapshot
for the whole transaction, and does not let it write once another one has written after that. What was read *before*
the transaction was opened cannot be known here.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, NoReturn

from leasehold.errors import ConfigurationError, RetryTransaction
from leasehold.fencing.token import refused, wrong_lock
from leasehold.sql.errors import is_retryable, objects_from_before, sqlite_code
from leasehold.sql.sqlite_busy import with_write_lock
from leasehold.sql.wires import Transaction

if TYPE_CHECKING:
    from leasehold.fencing.token import Token
    from leasehold.sql.wires import Wire

__all__ = ["SCHEMA", "raise_fence"]

SCHEMA = """\
CREATE TABLE IF NOT EXISTS leasehold_guard (
  resource TEXT NOT NULL PRIMARY KEY,
  lock TEXT,                           -- namespace and name of the one lock that guards it
  exclusive_fence INTEGER NOT NULL,    -- the highest fence of an exclusive holder that was here
  exclusive_grant TEXT,                -- which grant that was, as a digest
  shared_fence INTEGER NOT NULL        -- the highest fence of a shared holder
) WITHOUT ROWID
"""

# resource, lock, fence, grant -> one row changed if the holder may pass. A number whose grant is not known is taken for
# the grant that it equals.
_EXCLUSIVE = """
INSERT INTO leasehold_guard (resource, lock, exclusive_fence, exclusive_grant, shared_fence)
VALUES (%(resource)s, %(lock)s, %(fence)s, %(grant)s, 0)
ON CONFLICT (resource) DO UPDATE SET
  lock = coalesce(lock, excluded.lock), exclusive_fence = excluded.exclusive_fence,
  exclusive_grant = CASE WHEN exclusive_fence = excluded.exclusive_fence
    THEN coalesce(exclusive_grant, excluded.exclusive_grant) ELSE excluded.exclusive_grant END
WHERE coalesce(lock = excluded.lock, 1)
  AND (excluded.exclusive_fence > exclusive_fence
    OR (excluded.exclusive_fence = exclusive_fence AND coalesce(exclusive_grant = excluded.exclusive_grant, 1)))
  AND excluded.exclusive_fence > shared_fence
"""

# resource, lock, fence -> one row changed if the holder may pass
_SHARED = """
INSERT INTO leasehold_guard (resource, lock, exclusive_fence, shared_fence)
VALUES (%(resource)s, %(lock)s, 0, %(fence)s)
ON CONFLICT (resource) DO UPDATE SET
  lock = coalesce(lock, excluded.lock), shared_fence = max(shared_fence, excluded.shared_fence)
WHERE coalesce(lock = excluded.lock, 1) AND excluded.shared_fence > exclusive_fence
"""

# resource -> what is known about it; no row when it is new
_STATE = (
    "SELECT lock, exclusive_fence, exclusive_grant, shared_fence FROM leasehold_guard WHERE resource = %(resource)s"
)


async def raise_fence(
    wire: Wire, token: Token, *, trust_earlier_reads: bool = False, schema: str | None = None
) -> None:
    """Let the token pass and remember it, or refuse it."""
    if schema is not None:
        raise ConfigurationError("schema= is for PostgreSQL: a file of SQLite has one table of the guard")

    async def work() -> None:
        if not trust_earlier_reads:
            await _require_fresh_objects(wire, token)
        if not await _raise(wire, token):
            await _refuse(wire, token)

    opens = _opens_transaction(wire)
    try:
        await with_write_lock(wire, work, opens=opens)
    except Exception as error:
        if is_retryable(error):
            raise _retry(error) from error
        raise


async def _require_fresh_objects(wire: Wire, token: Token) -> None:
    if wire.holds_objects and not await _was_here(wire, token):
        raise objects_from_before()


def _opens_transaction(wire: Wire) -> bool:
    """The guard protects what is written in the same transaction, and nothing else. Says whether it has to open it."""
    state = wire.transaction()
    if state is Transaction.AUTOCOMMIT:
        raise ConfigurationError(
            "guard() was called outside a transaction, on a connection that commits every statement by itself: there "
            "it would protect nothing. Execute BEGIN IMMEDIATE first, or leave isolation_level at its default"
        )
    return state is Transaction.OPENS


async def _raise(wire: Wire, token: Token) -> bool:
    try:
        return await _apply(wire, token)
    except Exception as error:
        if not _is_missing_table(error):
            raise
    await wire.query(SCHEMA, {})
    return await _apply(wire, token)


async def _apply(wire: Wire, token: Token) -> bool:
    values = {"resource": token.resource, "lock": token.lock, "fence": token.fence}
    if token.shared:
        return (await wire.query(_SHARED, values)).count > 0
    return (await wire.query(_EXCLUSIVE, {**values, "grant": token.grant})).count > 0


async def _was_here(wire: Wire, token: Token) -> bool:
    """Whether the fence is this grant's already: what it has read since then is not older than the fence."""
    try:
        rows = (await wire.query(_STATE, {"resource": token.resource})).rows
    except Exception as error:
        if not _is_missing_table(error):
            raise
        return False
    if not rows:
        return False
    _, exclusive, grant, shared = rows[0]
    return bool(shared >= token.fence > exclusive if token.shared else (exclusive, grant) == (token.fence, token.grant))


async def _refuse(wire: Wire, token: Token) -> NoReturn:
    lock, exclusive, _, shared = (await wire.query(_STATE, {"resource": token.resource})).rows[0]
    if token.lock is not None and lock is not None and lock != token.lock:
        raise wrong_lock(token, lock)
    name = (lock or "").partition(":")[2] or None
    raise refused(token, exclusive if token.shared else max(exclusive, shared), name)


def _is_missing_table(error: Exception) -> bool:
    return sqlite_code(error) == sqlite3.SQLITE_ERROR and "no such table" in str(error)


def _retry(error: Exception) -> RetryTransaction:
    if sqlite_code(error) == sqlite3.SQLITE_BUSY_SNAPSHOT:
        return RetryTransaction(
            "this transaction had read before the guard was called, and the database has changed since; roll back and "
            "begin again, with guard() as the first statement"
        )
    return RetryTransaction("another connection was writing for too long; roll back and run the transaction again")
