"""`insert_once` in SQLite: `ON CONFLICT (key) DO NOTHING`; an error ends the statement, and not the transaction."""

from __future__ import annotations

import re
import sqlite3
from typing import TYPE_CHECKING, Any

from leasehold.errors import ConfigurationError
from leasehold.sql.errors import error_chain, sqlite_code
from leasehold.sql.inserts.insert_once import Taken

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leasehold.sql.tables.rows import Row, Rows
    from leasehold.sql.wires import Wire

__all__ = ["insert", "insert_or_nothing", "no_such_constraint"]

_UNIQUE = {
    sqlite3.SQLITE_CONSTRAINT_UNIQUE,
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
    sqlite3.SQLITE_CONSTRAINT_ROWID,
}
_MESSAGE = re.compile(r"UNIQUE constraint failed: (?:index '(?P<index>.*)'|(?P<columns>.*))", re.DOTALL)


async def insert(wire: Wire, rows: Rows, values: Mapping[str, Any], key: Sequence[str]) -> Row | Taken:
    """Insert the row, or say what is in the way."""
    try:
        return await insert_or_nothing(wire, rows, values, key)
    except Exception as error:
        if "ON CONFLICT clause does not match" in str(error):
            raise no_such_constraint(rows, key) from error
        if sqlite_code(error) in _UNIQUE:
            return _taken(error)
        raise


async def insert_or_nothing(wire: Wire, rows: Rows, values: Mapping[str, Any], key: Sequence[str]) -> Row | Taken:
    """The statement that this database shares with PostgreSQL."""
    target = ", ".join(rows.column(name) for name in key)
    statement = f"{rows.insert(values)} ON CONFLICT ({target}) DO NOTHING RETURNING *"
    found = rows.read(await wire.query(statement, rows.bound("value", values)))
    return found[0] if found else Taken(by_key=True)


def no_such_constraint(rows: Rows, key: Sequence[str]) -> ConfigurationError:
    """Without one, two inserts of a key would both succeed."""
    return ConfigurationError(
        f"{rows.table} has no primary key or unique constraint on exactly {', '.join(key)}, so nothing would keep two "
        "rows with the same key apart: add one, or name its columns in key="
    )


def _taken(error: Exception) -> Taken:
    own = next((each for each in error_chain(error) if isinstance(each, sqlite3.Error)), error)
    found = _MESSAGE.search(str(own))  # a framework adds lines of its own
    if found is None:
        return Taken(by_key=False)
    columns = tuple(name.rpartition(".")[2] for name in (found["columns"] or "").split(", ") if name)
    return Taken(by_key=False, constraint=found["index"], columns=columns)
