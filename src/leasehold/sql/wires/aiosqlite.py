"""The wire for aiosqlite: connections and cursors, whose work is done on a thread of the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiosqlite

from leasehold._words import kind_of
from leasehold.errors import ConfigurationError
from leasehold.sql.wires import Answer, Transaction, column_names
from leasehold.sql.wires.names import with_colons
from leasehold.sql.wires.sqlite3 import sqlite_transaction

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AiosqliteWire", "make_wire"]


class AiosqliteWire:
    """An `aiosqlite.Connection`."""

    dialect = "sqlite"
    is_async = True
    holds_objects = False

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self.driver = connection

    def transaction(self) -> Transaction:
        return sqlite_transaction(_inner(self.driver))

    async def query(self, statement: str, values: Mapping[str, object]) -> Answer:
        async with self.driver.cursor() as cursor:
            cursor.row_factory = None  # the connection may have one of its own
            await cursor.execute(with_colons(statement), values)
            rows = [tuple(row) for row in await cursor.fetchall()]
            return Answer(rows, cursor.rowcount, column_names(cursor.description))


def _inner(connection: aiosqlite.Connection) -> Any:
    """The connection of sqlite3 below it, which alone says whether it is in `autocommit`; that it may be read here."""
    return getattr(connection, "_conn", connection)


def make_wire(tx: Any) -> AiosqliteWire:
    """For a connection or a cursor of one."""
    connection = getattr(tx, "_conn", None) if isinstance(tx, aiosqlite.Cursor) else tx
    if not isinstance(connection, aiosqlite.Connection):
        raise ConfigurationError(f"leasehold.sql takes a connection or cursor of aiosqlite, not {kind_of(tx)}")
    return AiosqliteWire(connection)
