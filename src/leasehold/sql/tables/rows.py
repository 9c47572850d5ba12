"""Rows of the user's own tables in statements: names are quoted, and everything else is a bound value.

Operators are not qualified, unlike those on our tables: a type of an extension is compared by operators of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from leasehold.errors import ConfigurationError
from leasehold.sql.identifiers import escaped, quoted, table_name
from leasehold.sql.tables.tables import columns_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leasehold.sql.wires import Answer, Wire

__all__ = ["Row", "Rows", "check_key", "check_values"]

Row: TypeAlias = dict[str, Any]

# At REPEATABLE READ an UPDATE of MySQL and MariaDB sees the present row, and a plain SELECT still the old one.
_PRESENT = {"mysql": " LOCK IN SHARE MODE"}


def check_key(where: object) -> Mapping[str, Any]:
    """What names one row: columns and their values, none of them NULL, which equals nothing."""
    if not isinstance(where, Mapping) or not where:
        raise ConfigurationError(f"where= must name the row by its key, as in {{'id': 7}}, not {where!r}")
    empty = [name for name, value in where.items() if value is None]
    if empty:
        raise ConfigurationError(
            f"where= has None for {', '.join(map(repr, empty))}: NULL equals nothing, so no row fits"
        )
    return where


def check_values(values: object) -> Mapping[str, Any]:
    """What is to be written: columns and their values."""
    if not isinstance(values, Mapping):
        raise ConfigurationError(f"values must be columns and what to write, as in {{'state': 'paid'}}, not {values!r}")
    return values


class Rows:
    """The rows of one table over one connection."""

    def __init__(self, wire: Wire, table: Any) -> None:
        self._columns = columns_of(table, wire)
        self._dialect = wire.dialect
        name, qualifier = table_name(self._columns.table, wire.dialect)
        self.name: str = escaped(name)
        self._qualifier = escaped(qualifier)

    @property
    def table(self) -> str:
        """The table as people write it."""
        table = self._columns.table
        return table if isinstance(table, str) else ".".join(table)

    @property
    def parts(self) -> tuple[str | None, str]:
        """Its schema, if one was named, and its name."""
        table = self._columns.table
        return (None, table) if isinstance(table, str) else table

    def real_name(self, name: str) -> str:
        """What the database calls a column."""
        return self._columns.column(name)

    def column(self, name: str) -> str:
        """A column on the left of an assignment, or in a list."""
        return escaped(quoted(self._columns.column(name), dialect=self._dialect))

    def qualified(self, name: str) -> str:
        """A column in a condition. SQLite takes an unknown name in quotes for a text, unless it is qualified."""
        return f"{self._qualifier}.{self.column(name)}"

    def everything(self) -> str:
        """All columns, in a list of what to read."""
        return f"{self._qualifier}.*"

    def changes(self, values: Mapping[str, Any]) -> list[str]:
        """The assignments of an UPDATE; their values are `bound` as "value"."""
        return [f"{self.column(each)} = %(value_{place})s" for place, each in enumerate(values)]

    def fits(self, where: Mapping[str, Any]) -> str:
        """The condition that a row has this key; its values are `bound` as "key"."""
        return " AND ".join(f"{self.qualified(each)} = %(key_{place})s" for place, each in enumerate(where))

    def bound(self, prefix: str, values: Mapping[str, Any]) -> dict[str, object]:
        """The values as the driver gets them."""
        return {
            f"{prefix}_{place}": self._columns.stored(each, value) for place, (each, value) in enumerate(values.items())
        }

    def select(self, where: Mapping[str, Any], ending: str = "") -> str:
        """The statement that reads the rows with this key."""
        return f"SELECT {self.everything()} FROM {self.name} WHERE {self.fits(where)}{ending}"  # noqa: S608 - as the module says

    def select_present(self, where: Mapping[str, Any]) -> str:
        """The same, as the rows are now, and not as an earlier moment of this transaction saw them."""
        return self.select(where, _PRESENT.get(self._dialect, ""))

    def insert(self, values: Mapping[str, Any]) -> str:
        """The beginning of a statement that inserts one row; its values are `bound` as "value"."""
        columns = ", ".join(self.column(each) for each in values)
        places = ", ".join(f"%(value_{place})s" for place in range(len(values)))
        return f"INSERT INTO {self.name} ({columns}) VALUES ({places})"  # noqa: S608 - as the module says

    def read(self, answer: Answer) -> list[Row]:
        """The rows of an answer, by the names that the user knows."""
        return [
            dict(self._columns.loaded(column, value) for column, value in zip(answer.columns, row, strict=True))
            for row in answer.rows
        ]

    def refresh(self, row: Row) -> None:
        """Let the session's object for this row, if it holds one, have the values that were read."""
        self._columns.refresh(row)

    def forget(self, where: Mapping[str, Any], names: Iterable[str]) -> None:
        """Let the session's object for this row, if it holds one, read these columns again."""
        self._columns.forget(where, names)

    def one(self, found: list[Row], where: Mapping[str, Any]) -> Row | None:
        """The row that a key names; None if there is none."""
        if len(found) > 1:
            raise self.several(len(found), where)
        return found[0] if found else None

    def several(self, count: int, where: Mapping[str, Any]) -> ConfigurationError:
        """A condition that is no key."""
        return ConfigurationError(
            f"where={dict(where)!r} fits {count} rows of {self.table}; roll back, and name one row by its whole key"
        )
