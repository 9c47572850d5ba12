"""Reservations in PostgreSQL: rows of the user's own transaction.

read committed      each statement sees what was committed before it: who waited for a row goes on with the new value.
repeatable read,    a row that was changed after the transaction's one moment makes the statement fail with 40001,
serializable        which is `RetryTransaction` here.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from leasehold.errors import ConfigurationError
from leasehold.sql.errors import is_retryable, sqlstate
from leasehold.sql.one_table import OneTable, in_schema
from leasehold.sql.reservations.own_table import own_stock
from leasehold.sql.reservations.record import Reservation, retry
from leasehold.sql.reservations.steps import Statements

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leasehold.sql.reservations.record import Rules, StockTable
    from leasehold.sql.reservations.steps import Ledger
    from leasehold.sql.wires import Wire

__all__ = ["begin", "bound", "claim", "enter", "explain", "plain", "prevent_commit", "schema"]

STOCK = OneTable(
    "leasehold_stock",
    (
        """
CREATE TABLE IF NOT EXISTS @table@ (
  stock pg_catalog.text COLLATE pg_catalog."C" NOT NULL,  -- the name of the Stock
  item pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
  available bigint NOT NULL,
  CONSTRAINT leasehold_stock_pkey PRIMARY KEY (stock, item),
  CONSTRAINT leasehold_stock_available CHECK (available OPERATOR(pg_catalog.>=) 0)
)""",
    ),
    printed_by="leasehold schema reservations",
)

RESERVATIONS = OneTable(
    "leasehold_reservation",
    (
        """
CREATE TABLE IF NOT EXISTS @table@ (
  stock pg_catalog.text COLLATE pg_catalog."C" NOT NULL,  -- the name of the Stock
  id pg_catalog.text COLLATE pg_catalog."C" NOT NULL,     -- the key
  items pg_catalog.text NOT NULL,                         -- JSON: [[item, quantity], ...]
  state pg_catalog.text COLLATE pg_catalog."C" NOT NULL,  -- held, confirmed, cancelled, expired
  made_at timestamp with time zone NOT NULL,
  expires_at timestamp with time zone NOT NULL,
  settled_at timestamp with time zone,
  CONSTRAINT leasehold_reservation_pkey PRIMARY KEY (stock, id)
)""",
        "CREATE INDEX IF NOT EXISTS leasehold_reservation_expiry ON @table@ (stock, state, expires_at)",
    ),
    printed_by="leasehold schema reservations",
)

_NOW = "pg_catalog.clock_timestamp()"
_LATER = "pg_catalog.make_interval(secs => CAST(%({})s AS double precision))"
_STOCK = "entry.stock OPERATOR(pg_catalog.=) CAST(%(stock)s AS pg_catalog.text)"
_THIS = f"{_STOCK} AND entry.id OPERATOR(pg_catalog.=) CAST(%(id)s AS pg_catalog.text)"
_ITEM = f"{_STOCK} AND entry.item OPERATOR(pg_catalog.=) CAST(%(item)s AS pg_catalog.text)"
_OVER = f"entry.expires_at OPERATOR(pg_catalog.<=) {_NOW}"
_OVERDUE = f"entry.state OPERATOR(pg_catalog.=) 'held' AND {_OVER}"
_MOMENT = """CAST(pg_catalog.date_part('epoch', entry.expires_at) OPERATOR(pg_catalog.*) 1000000 AS bigint)"""
_FACTS = f"entry.items, entry.state, {_MOMENT}, {_OVER}"
_CHANGED = "entry.available OPERATOR(pg_catalog.+) CAST(%(change)s AS bigint)"

# items, hold -> one row if it was written
_CLAIM = f"""
INSERT INTO @table@ AS entry (stock, id, items, state, made_at, expires_at)
SELECT CAST(%(stock)s AS pg_catalog.text), CAST(%(id)s AS pg_catalog.text), CAST(%(items)s AS pg_catalog.text), 'held',
  now, now OPERATOR(pg_catalog.+) {_LATER.format("hold")}
FROM {_NOW} AS now
ON CONFLICT (stock, id) DO NOTHING
RETURNING {_FACTS}
"""  # noqa: S608 - put together from constants

_FIND = f"SELECT {_FACTS} FROM @table@ AS entry WHERE {_THIS}"  # noqa: S608 - constants
_OF_RESERVATIONS = {
    "find": _FIND,
    "lock": f"{_FIND} FOR UPDATE",
    "settle": f"""
UPDATE @table@ AS entry SET state = CAST(%(after)s AS pg_catalog.text), settled_at = {_NOW}
WHERE {_THIS} AND entry.state OPERATOR(pg_catalog.=) CAST(%(before)s AS pg_catalog.text)""",  # noqa: S608 - constants
    "remove": f"DELETE FROM @table@ AS entry WHERE {_THIS}",  # noqa: S608 - constants
    "overdue": f"""
SELECT entry.id, entry.items FROM @table@ AS entry WHERE {_STOCK} AND {_OVERDUE}
ORDER BY entry.expires_at LIMIT CAST(%(limit)s AS bigint)""",  # noqa: S608 - constants
    "lock_free": f"SELECT entry.state, {_OVER} FROM @table@ AS entry WHERE {_THIS} FOR UPDATE SKIP LOCKED",  # noqa: S608 - constants
    "held": f"""
SELECT entry.items, {_OVER} FROM @table@ AS entry WHERE {_STOCK} AND entry.state OPERATOR(pg_catalog.=) 'held'""",  # noqa: S608 - constants
    "listing": f"""
SELECT entry.id, {_FACTS} FROM @table@ AS entry WHERE {_STOCK}
  AND entry.state OPERATOR(pg_catalog.=) coalesce(CAST(%(state)s AS pg_catalog.text), entry.state)
ORDER BY entry.expires_at, entry.id LIMIT CAST(%(limit)s AS bigint)""",  # noqa: S608 - constants
    "old": f"""
SELECT entry.id FROM @table@ AS entry
WHERE {_STOCK} AND entry.state OPERATOR(pg_catalog.=) ANY (ARRAY['confirmed', 'cancelled', 'expired'])
  AND entry.expires_at OPERATOR(pg_catalog.<=) ({_NOW} OPERATOR(pg_catalog.-) {_LATER.format("keep")})
LIMIT CAST(%(limit)s AS bigint)""",  # noqa: S608 - constants
}

_OF_STOCK = {
    "change": f"""
UPDATE @table@ AS entry SET available = {_CHANGED}
WHERE {_ITEM} AND {_CHANGED} OPERATOR(pg_catalog.>=) 0""",  # noqa: S608 - constants
    "restock": f"""
INSERT INTO @table@ AS entry (stock, item, available)
VALUES (CAST(%(stock)s AS pg_catalog.text), CAST(%(item)s AS pg_catalog.text), CAST(%(change)s AS bigint))
ON CONFLICT (stock, item) DO UPDATE SET available = {_CHANGED}""",  # noqa: S608 - constants
    "level": f"SELECT entry.available FROM @table@ AS entry WHERE {_ITEM}",  # noqa: S608 - constants
    "levels": f"SELECT entry.item, entry.available FROM @table@ AS entry WHERE {_STOCK}",  # noqa: S608 - constants
}


def schema(schema: str | None) -> str:
    """The statements that make the tables."""
    return STOCK.script(schema) + RESERVATIONS.script(schema)


async def enter(wire: Wire, rules: Rules) -> Statements:
    """Find the tables, or make them."""
    home = await RESERVATIONS.home(wire, rules.schema)
    if home is None or (rules.own is None and await STOCK.home(wire, home) is None):
        raise retry("the tables of reservations are made by a transaction that is not over")
    return _statements(home, rules.own)


@functools.lru_cache(64)
def _statements(home: str, own: StockTable | None) -> Statements:
    ours = {word: in_schema(text, home, RESERVATIONS.name) for word, text in _OF_RESERVATIONS.items()}
    shelf = {word: in_schema(text, home, STOCK.name) for word, text in _OF_STOCK.items()}
    return Statements(**ours, **(shelf if own is None else own_stock(own, "postgresql")), home=home)


async def begin(wire: Wire) -> bool:  # noqa: ARG001 - a port
    """The driver opens a transaction by itself."""
    return False


async def claim(ledger: Ledger, values: Mapping[str, object]) -> Reservation | None:
    """Write the row of a reservation; who comes second waits here until the first has committed or not."""
    statement = in_schema(_CLAIM, ledger.statements.home, RESERVATIONS.name)
    rows = (await ledger.ask(statement, **values)).rows
    return Reservation.from_row(str(values["id"]), *rows[0]) if rows else None


async def prevent_commit(wire: Wire) -> None:
    """Nothing to do: PostgreSQL lets a transaction do nothing more after an error."""


def bound(word: str, value: object) -> object:  # noqa: ARG001 - a port
    """As it is."""
    return value


def plain(value: object) -> object:
    """As it is."""
    return value


def explain(wire: Wire, error: Exception) -> None:
    """Raise an error that says what to do, for those that are to be expected; others are left as they are."""
    state = sqlstate(error)
    if is_retryable(error):
        raise retry("PostgreSQL could not bring this transaction into an order with another one") from error
    if state == "42P01":
        RESERVATIONS.forget(wire)
        STOCK.forget(wire)
    if state == "42501":
        raise ConfigurationError(
            "this account may not create or write the tables of reservations: let their owner run the output of "
            "`leasehold schema reservations`, and GRANT SELECT, INSERT, UPDATE, DELETE on them"
        ) from error
    if state == "25006":
        raise ConfigurationError(
            "a reservation has to be written, and this transaction or server is read-only: use a read-write "
            "transaction on the primary"
        ) from error
