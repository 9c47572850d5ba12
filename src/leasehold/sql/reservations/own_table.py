"""Stock that is a column of the user's own table: the statements for it, in the quotes of each database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.sql.identifiers import escaped, quoted, table_name

if TYPE_CHECKING:
    from leasehold.sql.reservations.record import StockTable

__all__ = ["own_stock"]


def own_stock(own: StockTable, dialect: str) -> dict[str, str]:
    """What `Statements` wants to know of the stock. Names are quoted, and everything else is a value."""
    table = escaped(table_name(own.table, dialect)[0])
    item, available = (escaped(quoted(name, "a column", dialect)) for name in (own.item, own.available))
    update = f"UPDATE {table} SET {available} = {available} + %(change)s WHERE {item} = %(item)s"  # noqa: S608 - see above
    return {
        "change": f"{update} AND {available} + %(change)s >= 0",
        "restock": update,
        "level": f"SELECT {available} FROM {table} WHERE {item} = %(item)s",  # noqa: S608 - see above
        "levels": f"SELECT {item}, {available} FROM {table}",  # noqa: S608 - see above
    }
