"""`insert_once` in MySQL and MariaDB: a plain `INSERT`, whose error 1062 names the index that is in the way.

Not `INSERT IGNORE`: that takes a missing value, a text that is too long and a foreign key that fails for a row that
exists. Not `ON DUPLICATE KEY UPDATE` either: it writes into the other's row, whichever constraint was hit, and how many
rows it counts depends on an option of the client.
"""

from __future__ import annotations

import re
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from leasehold.errors import ConfigurationError
from leasehold.sql.errors import error_chain, mysql_code
from leasehold.sql.inserts.insert_once import Taken
from leasehold.sql.inserts.sqlite import no_such_constraint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leasehold.sql.tables.rows import Row, Rows
    from leasehold.sql.wires import Wire

__all__ = ["insert"]

_DUPLICATE = (1062, 1586)
_LAST_QUOTED = re.compile(r"'([^']+)'\W*$")

# schema, table -> index, column, by place; a column that is indexed by a prefix or an expression has none
_INDEXES = """
SELECT index_name, CASE WHEN sub_part IS NULL THEN column_name END
FROM information_schema.statistics
WHERE non_unique = 0 AND table_schema = COALESCE(%(schema)s, DATABASE()) AND table_name = %(table)s
ORDER BY index_name, seq_in_index
"""

Indexes = dict[str, tuple[str, ...]]
_SEEN: weakref.WeakKeyDictionary[object, dict[tuple[str | None, str], Indexes]] = weakref.WeakKeyDictionary()


async def insert(wire: Wire, rows: Rows, values: Mapping[str, Any], key: Sequence[str]) -> Row | Taken:
    """Insert the row, or say what is in the way."""
    wanted = sorted(rows.real_name(name).lower() for name in key)
    indexes = await _unique_indexes(wire, rows, wanted)
    try:
        await wire.query(rows.insert(values), rows.bound("value", values))
    except Exception as error:
        if mysql_code(error) not in _DUPLICATE:
            raise
        index = _index(error)
        columns = indexes.get(index.lower(), ()) if index is not None else ()
        return Taken(by_key=sorted(columns) == wanted, constraint=index, columns=columns)
    where = {name: values[name] for name in key}
    found = rows.read(await wire.query(rows.select_present(where), rows.bound("key", where)))
    if len(found) != 1:
        raise ConfigurationError(
            f"the row {where!r} was inserted into {rows.table}, and cannot be found by that key: the database has "
            "stored another value. Roll back, and switch the strict mode on (sql_mode)"
        )
    return found[0]


async def _unique_indexes(wire: Wire, rows: Rows, wanted: list[str]) -> Indexes:
    """The unique indexes, of which one must be the key's; looked up once per connection, and again if it is not."""
    known: dict[tuple[str | None, str], Indexes] = {}
    with suppress(TypeError):  # without weak references to its connections, they are looked up every time
        known = _SEEN.setdefault(wire.driver, known)
    indexes = known.get(rows.parts, {})
    if not _has(indexes, wanted):
        indexes = known[rows.parts] = await _look(wire, rows)
    if not _has(indexes, wanted):
        raise no_such_constraint(rows, wanted)
    return indexes


def _has(indexes: Indexes, wanted: list[str]) -> bool:
    return any(sorted(columns) == wanted for columns in indexes.values())


async def _look(wire: Wire, rows: Rows) -> Indexes:
    schema, table = rows.parts
    indexes: Indexes = {}
    for index, column in (await wire.query(_INDEXES, {"schema": schema, "table": table})).rows:
        indexes[index.lower()] = (*indexes.get(index.lower(), ()), str(column).lower())
    return indexes


def _index(error: BaseException) -> str | None:
    """The name of the index; MySQL writes the table before it."""
    for each in error_chain(error):
        found = _LAST_QUOTED.search(str(each.args[1])) if len(each.args) > 1 else None
        if found is not None:
            return found[1].rpartition(".")[2]
    return None
