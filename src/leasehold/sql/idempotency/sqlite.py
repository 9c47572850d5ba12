"""Idempotency keys in SQLite: the record is a row of the user's own transaction.

There is one write lock for the whole file, and an attempt takes it at its beginning: its owner sees every key that
was completed, and no other completes one before it is free again. An attempt without it gets `InFlight`, although
the writer may be at something else: SQLite does not say.

A savepoint stands for the transaction in which the attempt began. It is gone if that has ended when the block does.
"""

from __future__ import annotations

import secrets
import sqlite3
from typing import TYPE_CHECKING

from leasehold.errors import ConfigurationError, LeaseholdError
from leasehold.sql.errors import is_retryable, sqlite_code
from leasehold.sql.idempotency.record import (
    Kept,
    Opened,
    completed_inside,
    ended_inside,
    in_flight,
    require_transaction,
    retry,
)
from leasehold.sql.sqlite_busy import with_busy_timeout, with_write_lock
from leasehold.sql.wires import Transaction

if TYPE_CHECKING:
    from leasehold.sql.idempotency.record import Claim, Rules
    from leasehold.sql.wires import Wire

__all__ = ["begin", "complete", "leave", "schema", "sweep"]

_STATEMENTS = (
    """
CREATE TABLE IF NOT EXISTS leasehold_idempotency (
  name TEXT NOT NULL,          -- of the IdempotencyKeys
  principal TEXT NOT NULL,     -- whose key it is; empty where none was given
  key TEXT NOT NULL,
  fingerprint TEXT,            -- the SHA-256 of the payload
  result TEXT NOT NULL,        -- JSON
  completed_at REAL NOT NULL,  -- seconds since 1970
  expires_at REAL NOT NULL,
  PRIMARY KEY (name, principal, key)
) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS leasehold_idempotency_expiry ON leasehold_idempotency (expires_at)",
)

_NOW = "((julianday('now') - 2440587.5) * 86400.0)"
_THIS = "name = %(name)s AND principal = %(principal)s AND key = %(key)s"

# name, principal, key: takes the write lock, and removes a record that is over
_TAKE = f"DELETE FROM leasehold_idempotency WHERE {_THIS} AND expires_at <= {_NOW}"  # noqa: S608 - constants

_LOOK = f"SELECT fingerprint, result FROM leasehold_idempotency WHERE {_THIS} AND expires_at > {_NOW}"  # noqa: S608 - constants

# name, principal, key, fingerprint, result, keep -> one row if it was written
_COMPLETE = f"""
INSERT INTO leasehold_idempotency (name, principal, key, fingerprint, result, completed_at, expires_at)
VALUES (%(name)s, %(principal)s, %(key)s, %(fingerprint)s, %(result)s, {_NOW}, {_NOW} + %(keep)s)
ON CONFLICT DO NOTHING
"""  # noqa: S608 - constants

_SWEEP = f"""
DELETE FROM leasehold_idempotency WHERE (name, principal, key) IN (
  SELECT name, principal, key FROM leasehold_idempotency WHERE expires_at <= {_NOW} ORDER BY expires_at LIMIT %(limit)s)
"""  # noqa: S608 - constants


def schema(schema: str | None) -> str:
    """The statements that make the table."""
    _refuse_schema(schema)
    return "".join(f"{each.strip()};\n" for each in _STATEMENTS)


async def begin(wire: Wire, claim: Claim, rules: Rules) -> Kept | Opened:
    """Find the key completed, or take it until the end of the transaction."""
    _refuse_schema(rules.schema)
    opens = require_transaction(wire) is Transaction.OPENS
    try:
        await _take_in_time(wire, claim, rules.wait, opens=opens)
    except LeaseholdError:
        raise
    except Exception as error:
        if _code(error) != sqlite3.SQLITE_BUSY:
            raise
        kept = await _look_beside_the_writer(wire, claim)
        if kept is not None:
            return kept
        raise in_flight(
            claim, rules, "another connection is writing to this file, perhaps for this very key"
        ) from error
    return await _look(wire, claim) or await _open(wire)


async def _open(wire: Wire) -> Opened:
    opened = Opened(secrets.token_hex(8))
    await wire.query(f"SAVEPOINT {_savepoint(opened)}", {})
    return opened


async def _take_in_time(wire: Wire, claim: Claim, wait: float | None, *, opens: bool) -> None:
    """Take the write lock; `wait` replaces the busy timeout of the connection meanwhile."""
    try:
        await with_busy_timeout(wire, wait, lambda: with_write_lock(wire, lambda: _take(wire, claim), opens=opens))
    except Exception as error:
        if sqlite_code(error) == sqlite3.SQLITE_BUSY_SNAPSHOT:
            raise retry("this transaction had read before the attempt, and the database has changed since") from error
        raise


async def _take(wire: Wire, claim: Claim) -> None:
    try:
        await wire.query(_TAKE, claim.place())
    except Exception as error:
        if not _is_missing_table(error):
            raise
        for statement in _STATEMENTS:
            await wire.query(statement, {})


async def _look(wire: Wire, claim: Claim) -> Kept | None:
    rows = (await wire.query(_LOOK, claim.place())).rows
    return Kept(*rows[0]) if rows else None


async def _look_beside_the_writer(wire: Wire, claim: Claim) -> Kept | None:
    """A key that was completed before can be replayed whatever is being written now."""
    try:
        return await _look(wire, claim)
    except Exception as error:
        if _code(error) == sqlite3.SQLITE_BUSY or _is_missing_table(error):
            return None
        raise


async def complete(wire: Wire, claim: Claim, opened: Opened, result: str, rules: Rules) -> None:  # noqa: ARG001 - a port
    """Write the record into the transaction."""
    if wire.transaction() is not Transaction.OPEN:
        raise ended_inside()
    values = {**claim.place(), "fingerprint": claim.fingerprint, "result": result, "keep": rules.keep}
    try:
        written = (await wire.query(_COMPLETE, values)).count
    except Exception as error:
        if is_retryable(error):
            raise retry("another connection was writing for too long") from error
        if _is_missing_table(error):  # it was made in this transaction, and went with it
            raise ended_inside() from error
        raise
    if written != 1:
        raise completed_inside(claim)


async def leave(wire: Wire, opened: Opened) -> None:
    """The savepoint must still be there, unless all of it was committed already.

    That is seen here and not by `complete`: to release it inside a savepoint of the user's would end that one, too.
    """
    if wire.transaction() is not Transaction.OPEN:
        return
    try:
        await wire.query(f"RELEASE {_savepoint(opened)}", {})
    except Exception as error:
        if "no such savepoint" in str(error):
            raise ended_inside() from error
        raise


async def sweep(wire: Wire, limit: int, schema: str | None) -> int:
    """Remove records that are over, and say how many."""
    _refuse_schema(schema)
    try:
        return (await wire.query(_SWEEP, {"limit": limit})).count
    except Exception as error:
        if _is_missing_table(error):
            return 0
        if is_retryable(error):
            raise retry("another connection was writing for too long") from error
        raise


def _savepoint(opened: Opened) -> str:
    return f"leasehold_{opened.token}"


def _refuse_schema(schema: str | None) -> None:
    if schema is not None:
        raise ConfigurationError("schema= is for PostgreSQL: a file of SQLite has one table of idempotency keys")


def _code(error: Exception) -> int | None:
    code = sqlite_code(error)
    return None if code is None else code & 0xFF


def _is_missing_table(error: Exception) -> bool:
    return sqlite_code(error) == sqlite3.SQLITE_ERROR and "no such table: leasehold_idempotency" in str(error)
