"""Reservations in MySQL and MariaDB: rows of the user's own transaction.

Its usual level of isolation shows a transaction the database as of its first read. So nothing is decided on what a
plain SELECT says: rows are read with FOR UPDATE, which gives what is committed now, and stock is changed by a statement
that looks and writes. Lists of holds that are over are the one exception, and each is locked and looked at again.

CREATE TABLE would commit the user's transaction, so it is never executed here.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from leasehold.errors import ConfigurationError
from leasehold.sql.errors import is_retryable, mysql_code
from leasehold.sql.reservations.own_table import own_stock
from leasehold.sql.reservations.record import retry
from leasehold.sql.reservations.steps import Statements

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leasehold.sql.reservations.record import Reservation, Rules, StockTable
    from leasehold.sql.reservations.steps import Ledger
    from leasehold.sql.wires import Wire

__all__ = ["begin", "bound", "claim", "enter", "explain", "plain", "prevent_commit", "schema"]

# Names are binary: no two that differ, in case, blanks at the end or the form of an accent, are the same.
_TABLES = (
    """
CREATE TABLE IF NOT EXISTS leasehold_stock (
  stock VARBINARY(512) NOT NULL,  -- the name of the Stock
  item VARBINARY(512) NOT NULL,
  available BIGINT NOT NULL,
  PRIMARY KEY (stock, item),
  CONSTRAINT leasehold_stock_available CHECK (available >= 0)
) ENGINE=InnoDB""",
    """
CREATE TABLE IF NOT EXISTS leasehold_reservation (
  stock VARBINARY(512) NOT NULL,           -- the name of the Stock
  id VARBINARY(512) NOT NULL,              -- the key
  items MEDIUMBLOB NOT NULL,               -- JSON: [[item, quantity], ...]
  state VARBINARY(16) NOT NULL,            -- held, confirmed, cancelled, expired
  made_at DATETIME(6) NOT NULL,            -- UTC
  expires_at DATETIME(6) NOT NULL,
  settled_at DATETIME(6),
  requests BIGINT NOT NULL DEFAULT 1,      -- how often this key was asked for
  PRIMARY KEY (stock, id),
  INDEX leasehold_reservation_expiry (stock, state, expires_at)
) ENGINE=InnoDB""",
)

_NOW = "UTC_TIMESTAMP(6)"
_LATER = "INTERVAL CAST(%({})s * 1000000 AS SIGNED) MICROSECOND"
_THIS = "stock = UNHEX(%(stock)s) AND id = UNHEX(%(id)s)"
_ITEM = "stock = UNHEX(%(stock)s) AND item = UNHEX(%(item)s)"
_OVERDUE = f"state = 'held' AND expires_at <= {_NOW}"
_FACTS = f"items, state, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', expires_at), expires_at <= {_NOW}"

_FIND = f"SELECT {_FACTS} FROM leasehold_reservation WHERE {_THIS}"  # noqa: S608 - constants
_LOCK = f"{_FIND} FOR UPDATE"

# items, hold -> 1 if it was written, 2 if there is one. A change that changed nothing would count as 0 or as 1, as the
# connection was opened; so there is something to change.
_CLAIM = f"""
INSERT INTO leasehold_reservation (stock, id, items, state, made_at, expires_at)
VALUES (UNHEX(%(stock)s), UNHEX(%(id)s), %(items)s, 'held', {_NOW}, {_NOW} + {_LATER.format("hold")})
ON DUPLICATE KEY UPDATE requests = requests + 1
"""  # noqa: S608 - constants

_OF_RESERVATIONS = {
    "find": _FIND,
    "lock": _LOCK,
    "settle": f"""
UPDATE leasehold_reservation SET state = %(after)s, settled_at = {_NOW}
WHERE {_THIS} AND state = %(before)s""",  # noqa: S608 - constants
    "remove": f"DELETE FROM leasehold_reservation WHERE {_THIS}",  # noqa: S608 - constants
    "overdue": f"""
SELECT id, items FROM leasehold_reservation WHERE stock = UNHEX(%(stock)s) AND {_OVERDUE}
ORDER BY expires_at LIMIT %(limit)s""",  # noqa: S608 - constants
    "lock_free": f"""
SELECT state, expires_at <= {_NOW} FROM leasehold_reservation WHERE {_THIS} FOR UPDATE SKIP LOCKED""",  # noqa: S608 - constants
    "held": f"""
SELECT items, expires_at <= {_NOW} FROM leasehold_reservation
WHERE stock = UNHEX(%(stock)s) AND state = 'held'""",  # noqa: S608 - constants
    "listing": f"""
SELECT id, {_FACTS} FROM leasehold_reservation WHERE stock = UNHEX(%(stock)s) AND state = coalesce(%(state)s, state)
ORDER BY expires_at, id LIMIT %(limit)s""",  # noqa: S608 - constants
    "old": f"""
SELECT id FROM leasehold_reservation WHERE stock = UNHEX(%(stock)s) AND state IN ('confirmed', 'cancelled', 'expired')
AND expires_at <= {_NOW} - {_LATER.format("keep")} LIMIT %(limit)s""",  # noqa: S608 - constants
}

_OF_STOCK = {
    "change": f"""
UPDATE leasehold_stock SET available = available + %(change)s
WHERE {_ITEM} AND available + %(change)s >= 0""",  # noqa: S608 - constants
    "restock": """
INSERT INTO leasehold_stock (stock, item, available) VALUES (UNHEX(%(stock)s), UNHEX(%(item)s), %(change)s)
ON DUPLICATE KEY UPDATE available = available + %(change)s""",
    "level": f"SELECT available FROM leasehold_stock WHERE {_ITEM} LOCK IN SHARE MODE",  # noqa: S608 - constants
    "levels": "SELECT item, available FROM leasehold_stock WHERE stock = UNHEX(%(stock)s)",
}

_MISSING_TABLE, _DENIED, _READ_ONLY = 1146, (1142, 1044), (1290, 1792)


def schema(schema: str | None) -> str:
    """The statements that make the tables."""
    _refuse_schema(schema)
    return "".join(f"{each.strip()};\n" for each in _TABLES)


async def enter(wire: Wire, rules: Rules) -> Statements:  # noqa: ARG001 - a port
    """The tables must be there."""
    _refuse_schema(rules.schema)
    return _statements(rules.own)


@functools.lru_cache(64)
def _statements(own: StockTable | None) -> Statements:
    return Statements(**_OF_RESERVATIONS, **(_OF_STOCK if own is None else own_stock(own, "mysql")))


async def begin(wire: Wire) -> bool:  # noqa: ARG001 - a port
    """The first statement opens the transaction."""
    return False


async def claim(ledger: Ledger, values: Mapping[str, object]) -> Reservation | None:
    """Write the row of a reservation; who comes second waits here until the first has committed or not."""
    if (await ledger.ask(_CLAIM, **values)).count != 1:
        return None
    return await ledger.found(str(values["id"]), _LOCK)


async def prevent_commit(wire: Wire) -> None:
    """End the transaction, of which a half could be committed else: not every error does that here."""
    await wire.query("ROLLBACK", {})


def bound(word: str, value: object) -> object:
    """Names in hexadecimal: whatever the character set of the connection, these bytes are kept.

    Not as `bytes`: aiomysql cannot send them.
    """
    return value.encode().hex() if isinstance(value, str) and word in ("stock", "id", "item") else value


def plain(value: Any) -> Any:
    """Texts again."""
    return bytes(value).decode() if isinstance(value, (bytes, bytearray)) else value


def explain(wire: Wire, error: Exception) -> None:  # noqa: ARG001 - a port
    """Raise an error that says what to do, for those that are to be expected; others are left as they are."""
    number = mysql_code(error)
    if is_retryable(error):
        raise retry("the database could not bring this transaction into an order with another one") from error
    if number == _MISSING_TABLE and "leasehold_" in str(error):
        raise ConfigurationError(
            "the tables of reservations are not there, and CREATE TABLE would commit your transaction: run the output "
            "of `leasehold schema reservations --dialect mysql` once"
        ) from error
    if number in _DENIED:
        raise ConfigurationError(
            "this account may not write the tables of reservations: GRANT SELECT, INSERT, UPDATE, DELETE on them"
        ) from error
    if number in _READ_ONLY:
        raise ConfigurationError(
            "a reservation has to be written, and this transaction or server is read-only: use the primary"
        ) from error


def _refuse_schema(schema: str | None) -> None:
    if schema is not None:
        raise ConfigurationError("schema= is for PostgreSQL: here the tables are in the database of the connection")
