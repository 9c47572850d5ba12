"""The wire for connections and cursors of the standard library's `sqlite3`."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from leasehold._words import kind_of
from leasehold.errors import ConfigurationError
from leasehold.sql.wires import Answer, Transaction, column_names
from leasehold.sql.wires.names import with_colons

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Sqlite3Wire", "make_wire", "sqlite_transaction"]


def sqlite_transaction(driver: sqlite3.Connection) -> Transaction:
    """What happens to the next statement of such a connection."""
    if driver.in_transaction:
        return Transaction.OPEN
    if driver.isolation_level is None or getattr(driver, "autocommit", None) is True:
        return Transaction.AUTOCOMMIT
    return Transaction.OPENS


class Sqlite3Wire:
    """A `sqlite3.Connection`."""

    dialect = "sqlite"
    is_async = False
    holds_objects = False

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.driver = connection

    def transaction(self) -> Transaction:
        return sqlite_transaction(self.driver)

    async def query(self, statement: str, values: Mapping[str, object]) -> Answer:
        cursor = self.driver.cursor()
        cursor.row_factory = None  # the connection may have one of its own
        cursor.execute(with_colons(statement), values)
        rows = [tuple(row) for row in cursor.fetchall()]
        return Answer(rows, cursor.rowcount, column_names(cursor.description))


def make_wire(tx: object) -> Sqlite3Wire:
    """For a connection or a cursor of one."""
    connection = tx.connection if isinstance(tx, sqlite3.Cursor) else tx
    if not isinstance(connection, sqlite3.Connection):
        raise ConfigurationError(f"leasehold.sql takes a connection or cursor of sqlite3, not {kind_of(tx)}")
    return Sqlite3Wire(connection)
