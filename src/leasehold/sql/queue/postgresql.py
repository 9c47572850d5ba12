"""Queues in PostgreSQL: a claim locks the rows it takes, and skips those that others have locked (SKIP LOCKED).

In repeatable read and serializable transactions a row that has changed since the snapshot is refused with 40001, which
is `RetryTransaction` here; read committed, PostgreSQL's default, is best for claims.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.errors import ConfigurationError, RetryTransaction
from leasehold.sql.errors import is_retryable, sqlstate
from leasehold.sql.identifiers import escaped, quoted
from leasehold.sql.one_table import OneTable
from leasehold.sql.queue.rows import PLAIN_OPERATORS, insert

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leasehold.sql.wires import Wire

__all__ = ["WORDS", "before_claim", "explain", "heal", "insert", "is_missing_table", "make", "schema", "table"]

TABLE = OneTable(
    "leasehold_queue",
    (
        """
CREATE TABLE IF NOT EXISTS @table@ (
  id bigint GENERATED ALWAYS AS IDENTITY,  -- never given twice: the fences of a job belong to its number
  queue pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
  job_key pg_catalog.text COLLATE pg_catalog."C",  -- enqueueing it again does nothing
  payload pg_catalog.text NOT NULL,                -- JSON
  state pg_catalog.text NOT NULL,                  -- ready, claimed, done or dead
  due_at timestamp with time zone,                 -- ready: may be claimed; claimed: the claim runs out
  fence bigint NOT NULL,                           -- how often it was claimed
  attempts bigint NOT NULL,                        -- those that count, since it was enqueued or retried
  worker pg_catalog.text,                          -- of the last claim
  last_error pg_catalog.text,
  enqueued_at timestamp with time zone NOT NULL,
  changed_at timestamp with time zone NOT NULL,
  CONSTRAINT leasehold_queue_pkey PRIMARY KEY (id)
)""",
        "CREATE UNIQUE INDEX IF NOT EXISTS leasehold_queue_key ON @table@ (queue, job_key)",
        "CREATE INDEX IF NOT EXISTS leasehold_queue_due ON @table@ (queue, due_at, id) WHERE due_at IS NOT NULL",
        "CREATE INDEX IF NOT EXISTS leasehold_queue_over ON @table@ (queue, state, changed_at) WHERE due_at IS NULL",
    ),
    printed_by="leasehold schema queue",
)

_TYPES = {
    "error": "pg_catalog.text",
    "fence": "bigint",
    "id": "bigint",
    "key": "pg_catalog.text",
    "limit": "bigint",
    "payload": "pg_catalog.text",
    "queue": "pg_catalog.text",
    "state": "pg_catalog.text",
    "worker": "pg_catalog.text",
}
_NOW = "pg_catalog.clock_timestamp()"
_SECONDS = "pg_catalog.make_interval(secs => CAST(%(seconds)s AS double precision))"

WORDS: Mapping[str, Any] = {
    **{value: f"CAST(%({value})s AS {kind})" for value, kind in _TYPES.items()},
    **{word: f"OPERATOR(pg_catalog.{sign})" for word, sign in PLAIN_OPERATORS.items()},
    "table": "@table@",
    "among": "id OPERATOR(pg_catalog.=) ANY (ARRAY[@ids@])",
    "now": _NOW,
    "then": "pg_catalog.statement_timestamp()",  # does not change while the statement runs, so an index can be used
    # In brackets: all operators that are written like this bind alike.
    "later": f"({_NOW} OPERATOR(pg_catalog.+) {_SECONDS})",
    "earlier": f"(pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) {_SECONDS})",
    "age": {
        column: f"CAST(EXTRACT(epoch FROM {_NOW} OPERATOR(pg_catalog.-) {column}) AS double precision)"
        for column in ("due_at", "enqueued_at", "changed_at")
    },
    "skip_locked": "FOR UPDATE SKIP LOCKED",
    "skip_ended": "FOR UPDATE SKIP LOCKED",
    "as_it_is": "",
    "by_due": "",
    "count": "pg_catalog.count",
    "max": "pg_catalog.max",
    "hexadecimal": frozenset(),
}


def schema(schema: str | None) -> str:
    """The statements that make the table."""
    return TABLE.script(schema)


async def table(wire: Wire, schema: str | None, *, make: bool) -> str | None:
    """Its name with its schema; it is made in the transaction where there is none."""
    home = await TABLE.home(wire, schema) if make else await TABLE.found(wire, schema)
    if home is None:
        if not make:
            return None
        raise RetryTransaction(
            "the table leasehold_queue is being made by a transaction that is not over: roll back, and run the whole "
            "transaction again"
        )
    return escaped(f"{quoted(home, 'a schema')}.{TABLE.name}")


async def make(wire: Wire, schema: str | None) -> None:
    """Make the table, in the transaction if there is one."""
    await table(wire, schema, make=True)


async def heal(wire: Wire, error: Exception) -> bool:  # noqa: ARG001 - a port
    """After an error a transaction of PostgreSQL can do nothing more."""
    return False


async def before_claim(wire: Wire) -> None:
    """Nothing: the rows are locked as they are read."""


def is_missing_table(error: Exception) -> bool:
    """Whether the error says so."""
    return sqlstate(error) == "42P01"


def explain(wire: Wire, error: Exception) -> None:
    """Raise an error that says what to do, for those that are to be expected."""
    state = sqlstate(error)
    if is_retryable(error):
        raise RetryTransaction(
            "PostgreSQL could not bring this transaction into an order with another one: roll back, and run the whole "
            "transaction again"
        ) from error
    if state == "42P01":
        TABLE.forget(wire)
        raise RetryTransaction(
            "the table leasehold_queue is not where it was: roll back, and run the whole transaction again"
        ) from error
    if state == "42501":
        raise ConfigurationError(
            "this account may not create or write the table leasehold_queue: let its owner run the output of "
            "`leasehold schema queue`, and GRANT SELECT, INSERT, UPDATE, DELETE on it"
        ) from error
    if state == "25006":
        raise ConfigurationError(
            "jobs have to be written, and this transaction or server is read-only: use a read-write transaction on "
            "the primary"
        ) from error
