"""Queues in MariaDB 10.6 and MySQL 8, or newer: a claim locks the rows it takes, and skips those of others.

Under repeatable read, the default there, a locking read also locks the gaps between rows: claims then stand in the way
of each other and of those who enqueue, and some end as deadlocks (`RetryTransaction`). Nothing is lost by that. The
worker claims under read committed, which locks no gaps; do the same where you call `claim` yourself.

A CREATE TABLE commits what is open, so the table is never made inside a transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.errors import ConfigurationError, RetryTransaction
from leasehold.sql.errors import is_retryable, mysql_code
from leasehold.sql.queue.rows import INSERT, PLAIN_OPERATORS
from leasehold.sql.wires import Transaction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leasehold.sql.queue.rows import Rows
    from leasehold.sql.wires import Wire

__all__ = ["WORDS", "before_claim", "explain", "heal", "insert", "is_missing_table", "make", "schema", "table"]

# Names are bytes: to the collations of MySQL some that differ are the same. Times are UTC.
_CREATE = """
CREATE TABLE IF NOT EXISTS leasehold_queue (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,  -- never given twice: the fences of a job belong to its number
  queue VARBINARY(512) NOT NULL,
  job_key VARBINARY(512),                         -- enqueueing it again does nothing
  payload LONGTEXT CHARACTER SET ascii NOT NULL,  -- JSON
  state VARCHAR(10) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,  -- ready, claimed, done or dead
  due_at DATETIME(6),                             -- UTC; ready: may be claimed; claimed: the claim runs out
  fence BIGINT NOT NULL,                          -- how often it was claimed
  attempts BIGINT NOT NULL,                       -- those that count, since it was enqueued or retried
  worker VARCHAR(255) CHARACTER SET utf8mb4,      -- of the last claim
  last_error TEXT CHARACTER SET utf8mb4,
  enqueued_at DATETIME(6) NOT NULL,
  changed_at DATETIME(6) NOT NULL,
  UNIQUE KEY leasehold_queue_key (queue, job_key),
  KEY leasehold_queue_due (queue, due_at, id),
  KEY leasehold_queue_over (queue, state, changed_at)
) ENGINE=InnoDB"""

_NOW = "UTC_TIMESTAMP(6)"
_NAMES = ("key", "queue")
_TEXTS = ("error", "worker")
_VALUES = ("fence", "id", "limit", "payload", "state")

WORDS: Mapping[str, Any] = {
    **{value: f"%({value})s" for value in _VALUES},
    # Sent in hexadecimal: whatever character set the connection has, and although aiomysql cannot send bytes.
    **{value: f"UNHEX(%({value})s)" for value in _NAMES},
    **{value: f"CONVERT(UNHEX(%({value})s) USING utf8mb4)" for value in _TEXTS},
    **PLAIN_OPERATORS,
    "table": "@table@",
    "among": "id IN (@ids@)",
    "now": _NOW,
    "then": _NOW,
    "later": f"TIMESTAMPADD(MICROSECOND, ROUND(%(seconds)s * 1000000), {_NOW})",
    "earlier": f"TIMESTAMPADD(MICROSECOND, -ROUND(%(seconds)s * 1000000), {_NOW})",
    "age": {
        column: f"TIMESTAMPDIFF(MICROSECOND, {column}, {_NOW}) / 1e6"
        for column in ("due_at", "enqueued_at", "changed_at")
    },
    "skip_locked": "FOR UPDATE SKIP LOCKED",
    "skip_ended": "",  # a locking read also locks the row behind its range, for a moment: a job that a claim then skips
    "as_it_is": "LOCK IN SHARE MODE",  # a repeatable read would show the row as it was
    "by_due": "FORCE INDEX (leasehold_queue_due)",  # by another index, rows that are not due would be locked, too
    "count": "COUNT",
    "max": "MAX",
    "hexadecimal": frozenset({*_NAMES, *_TEXTS}),
}

_INSERT = f"{INSERT} ON DUPLICATE KEY UPDATE id = id"

MISSING_TABLE = 1146
NO_RIGHT = {1044, 1142, 1143}
READ_ONLY = {1290, 1792, 1836}
SYNTAX = 1064


def schema(schema: str | None) -> str:
    """The statement that makes the table."""
    _refuse(schema)
    return f"{_CREATE.strip()};\n"


async def table(wire: Wire, schema: str | None, *, make: bool) -> str | None:  # noqa: ARG001 - a port
    """Its name; the first statement shows whether it is there."""
    _refuse(schema)
    return "leasehold_queue"


async def make(wire: Wire, schema: str | None) -> None:
    """Make the table; not where that would commit a transaction of the user's."""
    _refuse(schema)
    if wire.transaction() is Transaction.OPEN:
        raise ConfigurationError(
            "create_tables() was called inside a transaction, and MySQL and MariaDB would commit that first: call it "
            "before the transaction, or run the output of `leasehold schema queue --dialect mysql`"
        )
    try:  # an account that may not create tables can do without, if the table is there
        await wire.query("SELECT 1 FROM leasehold_queue LIMIT 0", {})
    except Exception as error:
        if not is_missing_table(error):
            raise
        await wire.query(_CREATE, {})


async def heal(wire: Wire, error: Exception) -> bool:  # noqa: ARG001 - a port
    """Nothing can be made inside a transaction."""
    return False


async def before_claim(wire: Wire) -> None:
    """Nothing: the rows are locked as they are read."""


async def insert(rows: Rows, values: dict[str, object]) -> int | None:
    """Write the row; its number, or None if there is a key, which may have been there already."""
    await rows.ask(_INSERT, values)
    if values["key"] is not None:
        return None  # the count of such a statement depends on the options of the connection
    return int((await rows.wire.query("SELECT LAST_INSERT_ID()", {})).rows[0][0])


def is_missing_table(error: Exception) -> bool:
    """Whether the error says so."""
    return mysql_code(error) == MISSING_TABLE


def explain(wire: Wire, error: Exception) -> None:  # noqa: ARG001 - a port
    """Raise an error that says what to do, for those that are to be expected."""
    number = mysql_code(error)
    if is_retryable(error):
        raise RetryTransaction(
            "the database could not bring this transaction into an order with another one: roll back, and run the "
            "whole transaction again"
        ) from error
    if number == MISSING_TABLE:
        raise ConfigurationError(
            "there is no table leasehold_queue, and to make it would commit your transaction: call "
            "queue.create_tables(connection) before it, or run the output of `leasehold schema queue --dialect mysql`"
        ) from error
    if number in NO_RIGHT:
        raise ConfigurationError(
            "this account may not create or write the table leasehold_queue: let its owner run the output of "
            "`leasehold schema queue --dialect mysql`, and GRANT SELECT, INSERT, UPDATE, DELETE on it"
        ) from error
    if number in READ_ONLY:
        raise ConfigurationError(
            "jobs have to be written, and this transaction or server is read-only: use a read-write transaction on "
            "the primary"
        ) from error
    if number == SYNTAX and "SKIP LOCKED" in str(error):
        raise ConfigurationError(
            "this server has no SKIP LOCKED, without which claims would wait for each other: queues need MariaDB 10.6 "
            "or MySQL 8, or newer"
        ) from error


def _refuse(schema: str | None) -> None:
    if schema is not None:
        raise ConfigurationError("schema= is for PostgreSQL: a database of MySQL or MariaDB has one table of queues")
