"""`insert_once` in PostgreSQL: `ON CONFLICT (key) DO NOTHING`, behind a savepoint.

The named key never raises an error. Another constraint does, and would end the whole transaction; behind a savepoint it
ends the statement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.errors import RetryTransaction
from leasehold.sql.errors import error_chain, sqlstate
from leasehold.sql.inserts.insert_once import Taken
from leasehold.sql.inserts.sqlite import insert_or_nothing, no_such_constraint
from leasehold.sql.savepoints import behind_a_savepoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leasehold.sql.tables.rows import Row, Rows
    from leasehold.sql.wires import Wire

__all__ = ["insert"]

_UNIQUE, _EXCLUSION = "23505", "23P01"
_NO_SUCH_CONSTRAINT, _CHANGED_SINCE_SNAPSHOT = "42P10", "40001"


async def insert(wire: Wire, rows: Rows, values: Mapping[str, Any], key: Sequence[str]) -> Row | Taken:
    """Insert the row, or say what is in the way."""
    try:
        return await behind_a_savepoint(wire, lambda: insert_or_nothing(wire, rows, values, key))
    except Exception as error:
        code = sqlstate(error)
        if code == _NO_SUCH_CONSTRAINT:
            raise no_such_constraint(rows, key) from error
        if code == _CHANGED_SINCE_SNAPSHOT:
            raise RetryTransaction(
                f"a row of {rows.table} with this key was inserted after the moment that this transaction sees; roll "
                "back, and run the whole transaction again"
            ) from error
        if code in (_UNIQUE, _EXCLUSION):
            return Taken(by_key=False, constraint=_constraint(error))
        raise


def _constraint(error: BaseException) -> str | None:
    """Its name, where the driver tells: psycopg in `diag`, asyncpg on the error."""
    for each in error_chain(error):
        name = getattr(getattr(each, "diag", each), "constraint_name", None)
        if isinstance(name, str):
            return name
    return None
