"""Idempotency keys in PostgreSQL: the record is a row of the user's own transaction.

A key is absent or completed; it is never seen half done. That an attempt is in flight is shown by an advisory lock
that ends with its transaction, so a second one is answered at once instead of blocking behind an uncommitted row.
The primary key is what lets no two of them commit; the lock only tells early.

    read committed      after the lock was had, the row is looked for again: the holder before us may have committed
                        between our first look and the lock.
    repeatable read,    the transaction sees one moment, and a row that was committed after it is not seen. Writing the
    serializable        record then fails with 40001, which is `RetryTransaction` here.

That the transaction is still the one in which the attempt began is shown by a setting that ends with it, and that a
rollback to a savepoint takes back, as it does the lock.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from leasehold.errors import ConfigurationError, LeaseholdError
from leasehold.sql.errors import is_retryable, sqlstate
from leasehold.sql.idempotency.record import (
    Kept,
    Opened,
    completed_inside,
    ended_inside,
    in_flight,
    require_transaction,
    retry,
)
from leasehold.sql.one_table import OneTable, in_schema
from leasehold.sql.pauses import Pauses

if TYPE_CHECKING:
    from leasehold.sql.idempotency.record import Claim, Rules
    from leasehold.sql.wires import Answer, Wire

__all__ = ["begin", "complete", "leave", "schema", "sweep"]

TABLE = OneTable(
    "leasehold_idempotency",
    (
        """
CREATE TABLE IF NOT EXISTS @table@ (
  name pg_catalog.text COLLATE pg_catalog."C" NOT NULL,       -- of the IdempotencyKeys
  principal pg_catalog.text COLLATE pg_catalog."C" NOT NULL,  -- whose key it is; empty where none was given
  key pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
  fingerprint pg_catalog.text,                                -- the SHA-256 of the payload
  result pg_catalog.text NOT NULL,                            -- JSON
  completed_at timestamp with time zone NOT NULL,
  expires_at timestamp with time zone NOT NULL,
  CONSTRAINT leasehold_idempotency_pkey PRIMARY KEY (name, principal, key)
)""",
        "CREATE INDEX IF NOT EXISTS leasehold_idempotency_expiry ON @table@ (expires_at)",
    ),
    printed_by="leasehold schema idempotency",
)

_KEPT = """
kept AS MATERIALIZED (
  SELECT record.fingerprint, record.result FROM @table@ AS record
  WHERE record.name OPERATOR(pg_catalog.=) CAST(%(name)s AS pg_catalog.text)
    AND record.principal OPERATOR(pg_catalog.=) CAST(%(principal)s AS pg_catalog.text)
    AND record.key OPERATOR(pg_catalog.=) CAST(%(key)s AS pg_catalog.text)
    AND record.expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()
)"""

_TOKENS = "coalesce(pg_catalog.current_setting('leasehold.attempts', true), '')"

# name, principal, key, number -> what is kept; if nothing is, whether the lock is ours; the level of isolation
_TAKE = f"""
WITH {_KEPT.strip()}
SELECT kept.fingerprint, kept.result,
  CASE WHEN kept.result IS NULL THEN pg_catalog.pg_try_advisory_xact_lock(CAST(%(number)s AS bigint)) END,
  pg_catalog.current_setting('transaction_isolation')
FROM (SELECT 1) AS one LEFT JOIN kept ON true
"""  # noqa: S608 - put together from constants

# name, principal, key, token -> what is kept now; the token is left in the transaction
_LOOK_AGAIN = f"""
WITH {_KEPT.strip()}
SELECT kept.fingerprint, kept.result, pg_catalog.set_config('leasehold.attempts',
  pg_catalog.concat({_TOKENS}, ' ', CAST(%(token)s AS pg_catalog.text)), true)
FROM (SELECT 1) AS one LEFT JOIN kept ON true
"""  # noqa: S608 - put together from constants

_IS_HERE = f"pg_catalog.strpos({_TOKENS}, CAST(%(token)s AS pg_catalog.text)) OPERATOR(pg_catalog.>) 0"

# name, principal, key, fingerprint, result, keep, token -> one row if it was written
_COMPLETE = f"""
INSERT INTO @table@ AS kept (name, principal, key, fingerprint, result, completed_at, expires_at)
SELECT CAST(%(name)s AS pg_catalog.text), CAST(%(principal)s AS pg_catalog.text), CAST(%(key)s AS pg_catalog.text),
  CAST(%(fingerprint)s AS pg_catalog.text), CAST(%(result)s AS pg_catalog.text), pg_catalog.clock_timestamp(),
  pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+)
    pg_catalog.make_interval(secs => CAST(%(keep)s AS double precision))
WHERE {_IS_HERE}
ON CONFLICT (name, principal, key) DO UPDATE SET
  fingerprint = excluded.fingerprint, result = excluded.result,
  completed_at = excluded.completed_at, expires_at = excluded.expires_at
WHERE kept.expires_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()
RETURNING 1
"""

# limit -> how many were removed. Rows that another transaction removes or writes are left to it.
_SWEEP = """
DELETE FROM @table@ AS record USING (
  SELECT old.name, old.principal, old.key FROM @table@ AS old
  WHERE old.expires_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()
  ORDER BY old.expires_at LIMIT CAST(%(limit)s AS bigint) FOR UPDATE SKIP LOCKED
) AS gone
WHERE record.name OPERATOR(pg_catalog.=) gone.name AND record.principal OPERATOR(pg_catalog.=) gone.principal
  AND record.key OPERATOR(pg_catalog.=) gone.key
"""

_SLEEP = "SELECT pg_catalog.pg_sleep(CAST(%(pause)s AS double precision))"
_ABORT = "DO $$ BEGIN RAISE EXCEPTION 'leasehold: this attempt was refused' USING ERRCODE = 'LH003'; END $$"
_SEES_COMMITS = {"read committed", "read uncommitted"}


def schema(schema: str | None) -> str:
    """The statements that make the table."""
    return TABLE.script(schema)


async def begin(wire: Wire, claim: Claim, rules: Rules) -> Kept | Opened:
    """Find the key completed, or take it until the end of the transaction."""
    require_transaction(wire)
    try:
        pauses = Pauses(wire, rules.wait, _SLEEP)
        while (home := await TABLE.home(wire, rules.schema)) is None:
            if not await pauses.pause():
                raise in_flight(claim, rules, "the table of keys is made by a transaction that is not over")
        return await _take(wire, claim, rules, home, pauses)
    except LeaseholdError:
        raise
    except Exception as error:
        _explain(wire, error)
        raise


async def _take(wire: Wire, claim: Claim, rules: Rules, home: str, pauses: Pauses) -> Kept | Opened:
    values = {**claim.place(), "number": claim.number()}
    while True:
        ((fingerprint, result, ours, level),) = (await _query(wire, _TAKE, home, values)).rows
        if result is not None:
            return Kept(fingerprint, result)
        if ours:
            break
        if not await pauses.pause():
            raise in_flight(claim, rules, "the attempt that came first is not over")
    if pauses.used and level not in _SEES_COMMITS:
        raise retry("the attempt that came first is over, and this transaction sees the database as it was before that")
    token = secrets.token_hex(8)
    ((fingerprint, result, _),) = (await _query(wire, _LOOK_AGAIN, home, {**claim.place(), "token": token})).rows
    if result is not None:
        return Kept(fingerprint, result)
    return Opened(token, home, may_sweep=level in _SEES_COMMITS)


async def complete(wire: Wire, claim: Claim, opened: Opened, result: str, rules: Rules) -> None:
    """Write the record into the transaction."""
    home = opened.schema or ""
    values = {**claim.place(), "fingerprint": claim.fingerprint, "result": result, "keep": rules.keep}
    try:
        if not (await _query(wire, _COMPLETE, home, {**values, "token": opened.token})).rows:
            here = (await wire.query(f"SELECT {_IS_HERE}", {"token": opened.token})).rows[0][0]
            raise completed_inside(claim) if here else ended_inside()
    except LeaseholdError:
        with suppress(Exception):  # a program that goes on all the same cannot commit
            await wire.query(_ABORT, {})
        raise
    except Exception as error:
        _explain(wire, error)
        raise


async def leave(wire: Wire, opened: Opened) -> None:
    """Nothing to do: `complete` has looked at the transaction itself."""


async def sweep(wire: Wire, limit: int, schema: str | None) -> int:
    """Remove records that are over, and say how many."""
    try:
        home = await TABLE.home(wire, schema)
        return 0 if home is None else (await _query(wire, _SWEEP, home, {"limit": limit})).count
    except LeaseholdError:
        raise
    except Exception as error:
        _explain(wire, error)
        raise


async def _query(wire: Wire, statement: str, home: str, values: dict[str, object]) -> Answer:
    return await wire.query(in_schema(statement, home, TABLE.name), values)


def _explain(wire: Wire, error: Exception) -> None:
    """Raise an error that says what to do, for those that are to be expected; others are left as they are."""
    state = sqlstate(error)
    if is_retryable(error):
        raise retry("PostgreSQL could not bring this transaction into an order with another one") from error
    if state == "42P01":
        TABLE.forget(wire)
        raise retry("the table leasehold_idempotency is not where it was") from error
    if state == "42501":
        raise ConfigurationError(
            "this account may not create or write the table leasehold_idempotency: let its owner run the output of "
            "`leasehold schema idempotency`, and GRANT SELECT, INSERT, UPDATE, DELETE on it"
        ) from error
    if state == "25006":
        raise ConfigurationError(
            "the record of an attempt has to be written, and this transaction or server is read-only: use a read-write "
            "transaction on the primary"
        ) from error
