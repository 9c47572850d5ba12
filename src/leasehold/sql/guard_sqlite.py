"""The guard for `sqlite3` connections.

A transaction that has read before the guard is refused exactly when that does harm: SQLite keeps a reader's snapshot
for the whole transaction, and does not let it write once somebody else has written after that. What was read *before*
the transaction was opened cannot be known here.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, NoReturn

from leasehold.errors import ConfigurationError, Conflict
from leasehold.sql.token import refused, wrong_lock

if TYPE_CHECKING:
    from leasehold.sql.token import Token

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
INSERT INTO leasehold_guard (resource, lock, exclusive_fence, exclusive_grant, shared_fence) VALUES (?, ?, ?, ?, 0)
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
INSERT INTO leasehold_guard (resource, lock, exclusive_fence, shared_fence) VALUES (?, ?, 0, ?)
ON CONFLICT (resource) DO UPDATE SET
  lock = coalesce(lock, excluded.lock), shared_fence = max(shared_fence, excluded.shared_fence)
WHERE coalesce(lock = excluded.lock, 1) AND excluded.shared_fence > exclusive_fence
"""

_STATE = "SELECT lock, exclusive_fence, shared_fence FROM leasehold_guard WHERE resource = ?"


def raise_fence(tx: sqlite3.Connection | sqlite3.Cursor, token: Token) -> None:
    """Let the token pass and remember it, or refuse it."""
    connection = tx.connection if isinstance(tx, sqlite3.Cursor) else tx
    opened = _enter_transaction(connection)
    try:
        if not _raise(connection, token):
            _explain(connection, token)
    except BaseException as error:
        if opened and connection.in_transaction:
            connection.rollback()
        if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode == sqlite3.SQLITE_BUSY_SNAPSHOT:
            raise Conflict(
                "this transaction had read before the guard was called, and the database has changed since; roll back "
                "and begin again, with guard() as the first statement"
            ) from error
        raise


def _explain(connection: sqlite3.Connection, token: Token) -> NoReturn:
    lock, exclusive, shared = connection.execute(_STATE, (token.resource,)).fetchone()
    if token.lock is not None and lock is not None and lock != token.lock:
        raise wrong_lock(token, lock)
    name = (token.lock or lock or "").partition(":")[2] or None
    raise refused(token, exclusive if token.shared else max(exclusive, shared), name)


def _enter_transaction(connection: sqlite3.Connection) -> bool:
    """The guard protects what is written in the same transaction, and nothing else. Says whether it opened it."""
    if connection.in_transaction:
        return False
    if connection.isolation_level is None or getattr(connection, "autocommit", None) is True:
        raise ConfigurationError(
            "guard() was called outside a transaction, on a connection that commits every statement by itself: there "
            "it would protect nothing. Execute BEGIN IMMEDIATE first, or leave isolation_level at its default"
        )
    connection.execute("BEGIN IMMEDIATE")
    return True


def _raise(connection: sqlite3.Connection, token: Token) -> bool:
    try:
        return _apply(connection, token)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR or "no such table" not in str(error):
            raise
    connection.execute(SCHEMA)
    return _apply(connection, token)


def _apply(connection: sqlite3.Connection, token: Token) -> bool:
    if token.shared:
        return connection.execute(_SHARED, (token.resource, token.lock, token.fence)).rowcount > 0
    values = (token.resource, token.lock, token.fence, token.grant)
    return connection.execute(_EXCLUSIVE, values).rowcount > 0
