"""Reservations in SQLite: rows of the user's own transaction.

There is one write lock for the whole file, and a call that writes takes it with its first statement. A transaction that
has read before, and comes to write after another has written, is refused by SQLite: `RetryTransaction` here.
"""

from __future__ import annotations

import functools
import sqlite3
from typing import TYPE_CHECKING

from leasehold.errors import ConfigurationError
from leasehold.sql.errors import is_retryable, sqlite_code
from leasehold.sql.reservations.own_table import own_stock
from leasehold.sql.reservations.record import retry
from leasehold.sql.reservations.steps import Statements

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leasehold.sql.reservations.record import Reservation, Rules, StockTable
    from leasehold.sql.reservations.steps import Ledger
    from leasehold.sql.wires import Wire

__all__ = ["begin", "bound", "claim", "enter", "explain", "plain", "prevent_commit", "schema"]

_TABLES = (
    """
CREATE TABLE IF NOT EXISTS leasehold_stock (
  stock TEXT NOT NULL,  -- the name of the Stock
  item TEXT NOT NULL,
  available INTEGER NOT NULL CHECK (available >= 0),
  PRIMARY KEY (stock, item)
) WITHOUT ROWID""",
    """
CREATE TABLE IF NOT EXISTS leasehold_reservation (
  stock TEXT NOT NULL,       -- the name of the Stock
  id TEXT NOT NULL,          -- the key
  items TEXT NOT NULL,       -- JSON: [[item, quantity], ...]
  state TEXT NOT NULL,       -- held, confirmed, cancelled, expired
  made_at REAL NOT NULL,     -- seconds since 1970
  expires_at REAL NOT NULL,
  settled_at REAL,
  PRIMARY KEY (stock, id)
) WITHOUT ROWID""",
    """
CREATE INDEX IF NOT EXISTS leasehold_reservation_expiry ON leasehold_reservation (stock, state, expires_at)""",
)

_NOW = "((julianday('now') - 2440587.5) * 86400.0)"
_THIS = "stock = %(stock)s AND id = %(id)s"
_ITEM = "stock = %(stock)s AND item = %(item)s"
_OVERDUE = f"state = 'held' AND expires_at <= {_NOW}"
_FACTS = f"items, state, CAST(round(expires_at * 1000000) AS INTEGER), expires_at <= {_NOW}"

_FIND = f"SELECT {_FACTS} FROM leasehold_reservation WHERE {_THIS}"  # noqa: S608 - constants

# items, hold -> one row if it was written
_CLAIM = f"""
INSERT INTO leasehold_reservation (stock, id, items, state, made_at, expires_at)
VALUES (%(stock)s, %(id)s, %(items)s, 'held', {_NOW}, {_NOW} + %(hold)s)
ON CONFLICT DO NOTHING
"""  # noqa: S608 - constants

_OF_RESERVATIONS = {
    "find": _FIND,
    "lock": _FIND,  # what was read before another transaction wrote cannot be the base of a write
    "settle": f"""
UPDATE leasehold_reservation SET state = %(after)s, settled_at = {_NOW}
WHERE {_THIS} AND state = %(before)s""",  # noqa: S608 - constants
    "remove": f"DELETE FROM leasehold_reservation WHERE {_THIS}",  # noqa: S608 - constants
    "overdue": f"""
SELECT id, items FROM leasehold_reservation WHERE stock = %(stock)s AND {_OVERDUE}
ORDER BY expires_at LIMIT %(limit)s""",  # noqa: S608 - constants
    "held": f"""
SELECT items, expires_at <= {_NOW} FROM leasehold_reservation
WHERE stock = %(stock)s AND state = 'held'""",  # noqa: S608 - constants
    "listing": f"""
SELECT id, {_FACTS} FROM leasehold_reservation WHERE stock = %(stock)s AND state = coalesce(%(state)s, state)
ORDER BY expires_at, id LIMIT %(limit)s""",  # noqa: S608 - constants
    "old": f"""
SELECT id FROM leasehold_reservation WHERE stock = %(stock)s AND state IN ('confirmed', 'cancelled', 'expired')
AND expires_at <= {_NOW} - %(keep)s LIMIT %(limit)s""",  # noqa: S608 - constants
    "lock_free": f"SELECT state, expires_at <= {_NOW} FROM leasehold_reservation WHERE {_THIS}",  # noqa: S608 - constants
}

_OF_STOCK = {
    "change": f"""
UPDATE leasehold_stock SET available = available + %(change)s
WHERE {_ITEM} AND available + %(change)s >= 0""",  # noqa: S608 - constants
    "restock": """
INSERT INTO leasehold_stock (stock, item, available) VALUES (%(stock)s, %(item)s, %(change)s)
ON CONFLICT (stock, item) DO UPDATE SET available = available + excluded.available""",
    "level": f"SELECT available FROM leasehold_stock WHERE {_ITEM}",  # noqa: S608 - constants
    "levels": "SELECT item, available FROM leasehold_stock WHERE stock = %(stock)s",
}


def schema(schema: str | None) -> str:
    """The statements that make the tables."""
    _refuse_schema(schema)
    return "".join(f"{each.strip()};\n" for each in _TABLES)


async def enter(wire: Wire, rules: Rules) -> Statements:
    """Find the tables, or make them."""
    _refuse_schema(rules.schema)
    if not (await wire.query("SELECT 1 FROM sqlite_schema WHERE name = 'leasehold_reservation_expiry'", {})).rows:
        for statement in _TABLES:
            await wire.query(statement, {})
    return _statements(rules.own)


@functools.lru_cache(64)
def _statements(own: StockTable | None) -> Statements:
    shelf = _OF_STOCK if own is None else own_stock(own, "sqlite")
    return Statements(**_OF_RESERVATIONS, **shelf)


async def begin(wire: Wire) -> bool:
    """A transaction that is going to write takes the write lock at once: later it might be too late."""
    await wire.query("BEGIN IMMEDIATE", {})
    return True


async def claim(ledger: Ledger, values: Mapping[str, object]) -> Reservation | None:
    """Write the row of a reservation."""
    if (await ledger.ask(_CLAIM, **values)).count < 1:
        return None
    return await ledger.found(str(values["id"]), _FIND)


async def prevent_commit(wire: Wire) -> None:
    """End the transaction, of which a half could be committed else."""
    await wire.query("ROLLBACK", {})


def bound(word: str, value: object) -> object:  # noqa: ARG001 - a port
    """As it is."""
    return value


def plain(value: object) -> object:
    """As it is."""
    return value


def explain(wire: Wire, error: Exception) -> None:  # noqa: ARG001 - a port
    """Raise an error that says what to do, for those that are to be expected; others are left as they are."""
    if sqlite_code(error) == sqlite3.SQLITE_BUSY_SNAPSHOT:
        raise retry("this transaction had read before, and the database has changed since") from error
    if is_retryable(error):
        raise retry("another connection was writing for too long") from error


def _refuse_schema(schema: str | None) -> None:
    if schema is not None:
        raise ConfigurationError("schema= is for PostgreSQL: a file of SQLite has one table of reservations")
