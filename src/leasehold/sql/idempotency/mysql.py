"""Idempotency keys in MySQL and MariaDB (InnoDB): the record is a row of the user's own transaction.

The row is made when the attempt begins and keeps its result when the work is done. Who has the row locked is in flight,
and the lock ends with the transaction. A row without a result has no owner: it says nothing, also if it was committed,
so a key is absent or completed here as well. Locks are asked for without waiting; a key that was completed is replayed
beside the transaction that has it locked. What is locked is always the newest row, so an older snapshot hides no
completed key.

A savepoint stands for the transaction in which the attempt began. It is gone if that has ended when the block does.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, NoReturn

from leasehold.errors import LeaseholdError
from leasehold.sql.errors import mysql_code
from leasehold.sql.idempotency.record import (
    Kept,
    Opened,
    completed_inside,
    ended_inside,
    in_flight,
    require_transaction,
    retry,
)
from leasehold.sql.mysql_table import MysqlTable, abort, as_hex, as_text, at_once, explain, fresh_state, level_variable
from leasehold.sql.pauses import Pauses
from leasehold.sql.wires import Transaction

if TYPE_CHECKING:
    from leasehold.sql.idempotency.record import Claim, Rules
    from leasehold.sql.wires import Wire

__all__ = ["begin", "complete", "leave", "schema", "sweep"]

PRINTED_BY = "leasehold schema idempotency --dialect mysql"
TABLE = MysqlTable(
    "leasehold_idempotency",
    """\
CREATE TABLE IF NOT EXISTS @table@ (
  name VARBINARY(512) NOT NULL,            -- of the IdempotencyKeys
  principal VARBINARY(512) NOT NULL,       -- whose key it is; empty where none was given
  `key` VARBINARY(512) NOT NULL,
  fingerprint VARBINARY(128),              -- the SHA-256 of the payload
  result LONGTEXT CHARACTER SET ascii,     -- JSON; nothing is known of a key without one
  completed_at DATETIME(6),                -- in UTC
  expires_at DATETIME(6) NOT NULL,
  PRIMARY KEY (name, principal, `key`),
  KEY leasehold_idempotency_expiry (expires_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
""",
    printed_by=PRINTED_BY,
)

_PLACE = "UNHEX(%(name)s), UNHEX(%(principal)s), UNHEX(%(key)s)"
_THIS = "name = UNHEX(%(name)s) AND principal = UNHEX(%(principal)s) AND `key` = UNHEX(%(key)s)"
_EXPIRY = "UTC_TIMESTAMP(6) + INTERVAL %(keep)s SECOND"

# name, principal, key, keep: locks the row, and makes it if there is none
_TAKE = f"""
INSERT INTO @table@ (name, principal, `key`, expires_at) VALUES ({_PLACE}, {_EXPIRY})
ON DUPLICATE KEY UPDATE expires_at = expires_at
"""  # noqa: S608 - put together from constants

# name, principal, key -> what is kept in the newest row, whether it is over, and the level of isolation
_NEWEST = f"""
SELECT fingerprint, result, expires_at <= UTC_TIMESTAMP(6), @level@ FROM @table@ WHERE {_THIS} FOR UPDATE
"""  # noqa: S608 - put together from constants

# name, principal, key -> what is kept, as this transaction sees it
_LOOK = f"""
SELECT fingerprint, result FROM @table@ WHERE {_THIS} AND result IS NOT NULL AND expires_at > UTC_TIMESTAMP(6)
"""  # noqa: S608 - put together from constants

# name, principal, key, fingerprint, result, keep -> one row if it was written
_COMPLETE = f"""
UPDATE @table@ SET fingerprint = %(fingerprint)s, result = %(result)s, completed_at = UTC_TIMESTAMP(6),
  expires_at = {_EXPIRY}
WHERE {_THIS} AND (result IS NULL OR expires_at <= UTC_TIMESTAMP(6))
"""  # noqa: S608 - put together from constants

# limit -> the places of records that are over
_OVER = """
SELECT HEX(name), HEX(principal), HEX(`key`) FROM @table@ WHERE expires_at <= UTC_TIMESTAMP(6)
ORDER BY expires_at LIMIT %(limit)s
"""
_REMOVE = f"DELETE FROM @table@ WHERE {_THIS} AND expires_at <= UTC_TIMESTAMP(6)"  # noqa: S608 - constants

_SLEEP = "DO SLEEP(%(pause)s)"
_LOCKED = {1205, 3572}
_NO_SAVEPOINT = 1305


def schema(schema: str | None) -> str:
    """The statements that make the table."""
    return f"{TABLE.script(schema).strip()};\n"


async def begin(wire: Wire, claim: Claim, rules: Rules) -> Kept | Opened:
    """Find the key completed, or take it until the end of the transaction."""
    state = require_transaction(wire)
    try:
        kept = await _take(wire, claim, rules, state)
        if kept is not None:
            return kept
        await TABLE.require_transactions(wire, rules.schema)
        newest = TABLE.named(_NEWEST, rules.schema).replace("@level@", level_variable(wire))
        ((fingerprint, result, over, level),) = (await wire.query(newest, _place(claim))).rows
        if result is not None and not over:
            return Kept(as_text(fingerprint), result)
        opened = Opened(secrets.token_hex(8), rules.schema, may_sweep=level != "SERIALIZABLE")
        await wire.query(f"SAVEPOINT {_savepoint(opened)}", {})
    except Exception as error:  # noqa: BLE001 - raised again, in words
        _explain(error)
    return opened


async def _take(wire: Wire, claim: Claim, rules: Rules, state: Transaction) -> Kept | None:
    """Lock the row, or find the key completed beside the transaction that has it."""
    pauses = Pauses(wire, rules.wait, _SLEEP)
    values = {**_place(claim), "keep": rules.keep}
    while True:
        try:
            await TABLE.query(wire, _TAKE, rules.schema, values, waits=False)
        except Exception as error:
            if mysql_code(error) not in _LOCKED:
                raise
        else:
            return None
        if state is Transaction.OPEN and await fresh_state(wire, "DO 0", {}) is not Transaction.OPEN:
            raise retry("the server is set to roll back a transaction that meets a lock")
        rows = (await wire.query(TABLE.named(_LOOK, rules.schema), _place(claim))).rows
        if rows:
            return Kept(as_text(rows[0][0]), rows[0][1])
        if not await pauses.pause():
            raise in_flight(claim, rules, "the attempt that came first is not over")


async def complete(wire: Wire, claim: Claim, opened: Opened, result: str, rules: Rules) -> None:
    """Write the record into the transaction."""
    if wire.transaction() is not Transaction.OPEN:
        raise ended_inside()
    values = {**_place(claim), "fingerprint": claim.fingerprint, "result": result, "keep": rules.keep}
    try:
        if (await wire.query(TABLE.named(_COMPLETE, opened.schema), values)).count == 1:
            return
        kept = (await wire.query(TABLE.named(_LOOK, opened.schema), _place(claim))).rows
        raise completed_inside(claim) if kept else ended_inside()
    except LeaseholdError:
        await abort(wire)  # a program that goes on all the same cannot commit
        raise
    except Exception as error:  # noqa: BLE001 - raised again, in words
        _explain(error)


async def leave(wire: Wire, opened: Opened) -> None:
    """The savepoint must still be there, unless all of it was committed already; see SQLite's."""
    if wire.transaction() is not Transaction.OPEN:
        return
    try:
        await wire.query(f"RELEASE SAVEPOINT {_savepoint(opened)}", {})
    except Exception as error:
        if mysql_code(error) != _NO_SAVEPOINT:
            raise
        await abort(wire)
        raise ended_inside() from error


async def sweep(wire: Wire, limit: int, schema: str | None) -> int:
    """Remove records that are over, and say how many; what another transaction has locked is left to it.

    They are looked for without locks and removed one by one, by their whole keys: at REPEATABLE READ a range that is
    searched and locked would keep others from inserting into it.
    """
    removed = 0
    try:
        rows = (await TABLE.query(wire, _OVER, schema, {"limit": limit})).rows
        for name, principal, key in rows:
            place = {"name": name, "principal": principal, "key": key}
            removed += await _remove(wire, TABLE.named(_REMOVE, schema), place)
    except Exception as error:  # noqa: BLE001 - raised again, in words
        _explain(error)
    return removed


async def _remove(wire: Wire, statement: str, place: dict[str, object]) -> int:
    try:
        return (await at_once(wire, statement, place)).count
    except Exception as error:
        if mysql_code(error) in _LOCKED:
            return 0
        raise


def _place(claim: Claim) -> dict[str, object]:
    return {what: as_hex(str(value)) for what, value in claim.place().items()}


def _savepoint(opened: Opened) -> str:
    return f"leasehold_{opened.token}"


def _explain(error: Exception) -> NoReturn:
    explain(error, "attempt()", TABLE.name, PRINTED_BY, "SELECT, INSERT, UPDATE, DELETE")
