"""Ways to sell tickets of which there are only so many, each as a function: without care, and four that hold.

A sale is a row of the table `sale`. What was sold is counted there, and not taken from what a way says of itself.
"""

from __future__ import annotations

import secrets
from importlib import import_module
from typing import TYPE_CHECKING, Any

import leasehold
from leasehold import Backoff, OutOfStock
from leasehold.sql import Stock, cas_update, guard, guard_schema, lock_row, reservations_schema, retry_on_conflict

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NAIVE", "WAYS", "TicketOffice", "make_tables"]

NAIVE = "naive: read, then write"
LOCK = "lock in Redis, with the guard"
ROW_LOCK = "row lock"
RESERVATION = "reservation: conditional decrement"
OPTIMISTIC = "optimistic: version and retry"
WAYS = (NAIVE, LOCK, ROW_LOCK, RESERVATION, OPTIMISTIC)

# A buyer never gives up because others were faster: so a ticket that is left over was lost by the way itself.
PATIENCE = Backoff(("2ms", "5ms", "10ms", "20ms"), longest="50ms", jitter="full")

_LEFT = "SELECT available, version FROM ticket WHERE id = :item"
_WRITE = "UPDATE ticket SET available = :available WHERE id = :item"
_SOLD = "INSERT INTO sale (id, item) VALUES (:id, :item)"
_TABLES = (
    "CREATE TABLE ticket (id INTEGER PRIMARY KEY, available INTEGER NOT NULL, version INTEGER NOT NULL)",
    "CREATE TABLE sale (id VARCHAR(40) PRIMARY KEY, item INTEGER NOT NULL)",
)


class TicketOffice:
    """One process's way to one database; used from many threads."""

    def __init__(self, way: str, url: str, locks: str, hold: float = 60.0) -> None:
        self._sqlalchemy = import_module("sqlalchemy")
        self.engine = make_engine(url)
        self.retries = 0
        self._stock = Stock("tickets", table="ticket", hold=hold)
        self._client = leasehold.connect(locks) if way == LOCK else None
        ways: dict[str, Callable[[int], bool]] = {
            NAIVE: self._naive,
            LOCK: self._lock,
            ROW_LOCK: lambda item: self._again(lambda tx: self._row_lock(tx, item)),
            RESERVATION: self._reservation,
            OPTIMISTIC: lambda item: self._again(lambda tx: self._optimistic(tx, item)),
        }
        self.buy = ways[way]

    def close(self) -> None:
        """Let go of the connections."""
        self.engine.dispose()
        if self._client is not None:
            self._client.close()

    def reserve(self, item: int) -> str | None:
        """The first half of a reservation: its key, or None if all is sold or held."""
        key = secrets.token_hex(16)
        try:
            self._again(lambda tx: self._stock.reserve(tx, {item: 1}, key=key))
        except OutOfStock:
            return None
        return key

    def confirm(self, item: int, key: str) -> None:
        """The second half, and the sale in the same transaction."""

        def work(tx: Any) -> None:
            self._stock.confirm(tx, key)
            self._sell(tx, item, key)

        self._again(work)

    def _naive(self, item: int) -> bool:
        with self.engine.connect() as tx:
            left, _ = self._left(tx, item)
        if left < 1:
            return False
        return bool(self._again(lambda tx: self._take(tx, item, left)))

    def _lock(self, item: int) -> bool:
        assert self._client is not None
        with self._client.lock(f"ticket:{item}").hold(timeout=60) as lease:

            def work(tx: Any) -> bool:
                guard(tx, lease)
                left, _ = self._left(tx, item)
                return left > 0 and self._take(tx, item, left)

            return bool(self._again(work))

    def _row_lock(self, tx: Any, item: int) -> bool:
        row = lock_row(tx, "ticket", {"id": item})
        assert row is not None
        return row["available"] > 0 and self._take(tx, item, row["available"])

    def _reservation(self, item: int) -> bool:
        key = self.reserve(item)
        if key is None:
            return False
        self.confirm(item, key)  # in a shop the customer pays in between
        return True

    def _optimistic(self, tx: Any, item: int) -> bool:
        left, version = self._left(tx, item)
        if left < 1:
            return False
        cas_update(tx, "ticket", {"available": left - 1}, where={"id": item}, version=version)
        self._sell(tx, item)
        return True

    def _again(self, work: Callable[[Any], Any]) -> Any:
        return retry_on_conflict(self.engine.begin, work, backoff=PATIENCE, on_retry=self._count)

    def _count(self, *_: object) -> None:
        self.retries += 1  # of a figure, not of a promise: a lost one does not matter

    def _left(self, tx: Any, item: int) -> tuple[int, int]:
        left, version = tx.execute(self._sqlalchemy.text(_LEFT), {"item": item}).one()
        return int(left), int(version)

    def _take(self, tx: Any, item: int, left: int) -> bool:
        tx.execute(self._sqlalchemy.text(_WRITE), {"available": left - 1, "item": item})
        self._sell(tx, item)
        return True

    def _sell(self, tx: Any, item: int, key: str | None = None) -> None:
        tx.execute(self._sqlalchemy.text(_SOLD), {"id": key or secrets.token_hex(16), "item": item})


def make_engine(url: str) -> Any:
    """An engine for many threads, whose writers wait for each other."""
    sqlalchemy = import_module("sqlalchemy")
    if url.startswith("sqlite:"):
        engine = sqlalchemy.create_engine(url, connect_args={"timeout": 60}, pool_size=50)
        sqlalchemy.event.listen(engine, "connect", _write_ahead)
        return engine
    if url.startswith("postgresql:"):
        return sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"), pool_size=50)
    # PyMySQL reads all certificates of the system for each connection, whether the server offers TLS or not.
    plain = {"ssl_disabled": True}
    return sqlalchemy.create_engine(url.replace("mariadb:", "mariadb+pymysql:"), connect_args=plain, pool_size=50)


def _write_ahead(connection: Any, _: object) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")


def make_tables(url: str) -> None:
    """All that the ways need, in a new database."""
    engine = make_engine(url)
    name = {"mariadb": "mysql"}.get(engine.dialect.name, engine.dialect.name)
    scripts = [guard_schema(name) + ";\n", reservations_schema(name)]
    with engine.connect() as connection:
        for statement in [*_TABLES, *"".join(scripts).split(";\n")]:
            if statement.strip():
                connection.exec_driver_sql(statement)
        connection.commit()
    engine.dispose()
