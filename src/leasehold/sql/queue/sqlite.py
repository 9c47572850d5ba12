"""Queues in SQLite, where one connection writes at a time: a claim takes the write lock before it looks.

A call that does not get the lock within the busy timeout of its connection raises `RetryTransaction`.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from leasehold.errors import ConfigurationError, RetryTransaction
from leasehold.sql.errors import is_retryable, sqlite_code
from leasehold.sql.queue.rows import PLAIN_OPERATORS, insert

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leasehold.sql.wires import Wire

__all__ = ["WORDS", "before_claim", "explain", "heal", "insert", "is_missing_table", "make", "schema", "table"]

_STATEMENTS = (
    """
CREATE TABLE IF NOT EXISTS leasehold_queue (
  id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given twice: the fences of a job belong to its number
  queue TEXT NOT NULL,
  job_key TEXT,                          -- enqueueing it again does nothing
  payload TEXT NOT NULL,                 -- JSON
  state TEXT NOT NULL,                   -- ready, claimed, done or dead
  due_at REAL,                           -- seconds since 1970; ready: may be claimed; claimed: the claim runs out
  fence INTEGER NOT NULL,                -- how often it was claimed
  attempts INTEGER NOT NULL,             -- those that count, since it was enqueued or retried
  worker TEXT,                           -- of the last claim
  last_error TEXT,
  enqueued_at REAL NOT NULL,
  changed_at REAL NOT NULL
)""",
    "CREATE UNIQUE INDEX IF NOT EXISTS leasehold_queue_key ON leasehold_queue (queue, job_key)",
    "CREATE INDEX IF NOT EXISTS leasehold_queue_due ON leasehold_queue (queue, due_at, id) WHERE due_at IS NOT NULL",
    """
CREATE INDEX IF NOT EXISTS leasehold_queue_over ON leasehold_queue (queue, state, changed_at) WHERE due_at IS NULL""",
)

_NOW = "((julianday('now') - 2440587.5) * 86400.0)"
_VALUES = ("error", "fence", "id", "key", "limit", "payload", "queue", "state", "worker")

WORDS: Mapping[str, Any] = {
    **{value: f"%({value})s" for value in _VALUES},
    **PLAIN_OPERATORS,
    "table": "@table@",
    "among": "id IN (@ids@)",
    "now": _NOW,
    "then": _NOW,
    "later": f"{_NOW} + %(seconds)s",
    "earlier": f"{_NOW} - %(seconds)s",
    "age": {column: f"{_NOW} - {column}" for column in ("due_at", "enqueued_at", "changed_at")},
    "skip_locked": "",
    "skip_ended": "",
    "as_it_is": "",
    "by_due": "",
    "count": "count",
    "max": "max",
    "hexadecimal": frozenset(),
}

# It changes nothing, and takes the write lock: what is read after that no other connection changes.
_LOCK = "UPDATE leasehold_queue SET fence = fence WHERE id = -1"


def schema(schema: str | None) -> str:
    """The statements that make the table."""
    if schema is not None:
        raise ConfigurationError("schema= is for PostgreSQL: a file of SQLite has one table of queues")
    return "".join(f"{each.strip()};\n" for each in _STATEMENTS)


async def table(wire: Wire, schema: str | None, *, make: bool) -> str | None:  # noqa: ARG001 - a port
    """Its name; the first statement shows whether it is there."""
    if schema is not None:
        raise ConfigurationError("schema= is for PostgreSQL: a file of SQLite has one table of queues")
    return "leasehold_queue"


async def make(wire: Wire, schema: str | None) -> None:
    """Make the table, in the transaction if there is one."""
    await table(wire, schema, make=True)
    for statement in _STATEMENTS:
        await wire.query(statement, {})


async def heal(wire: Wire, error: Exception) -> bool:
    """A table that is missing is made in the transaction."""
    if not is_missing_table(error):
        return False
    await make(wire, None)
    return True


async def before_claim(wire: Wire) -> None:
    """Become the one that writes."""
    await wire.query(_LOCK, {})


def is_missing_table(error: Exception) -> bool:
    """Whether the error says so."""
    return sqlite_code(error) == sqlite3.SQLITE_ERROR and "no such table: leasehold_queue" in str(error)


def explain(wire: Wire, error: Exception) -> None:  # noqa: ARG001 - a port
    """Raise an error that says what to do, for those that are to be expected."""
    if not is_retryable(error):
        return
    if sqlite_code(error) == sqlite3.SQLITE_BUSY_SNAPSHOT:
        what = "this transaction had read before it used the queue, and the database has changed since"
    else:
        what = "another connection was writing for too long"
    raise RetryTransaction(f"{what}: roll back, and run the whole transaction again") from error
