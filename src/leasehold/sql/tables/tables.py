"""What stands for a table: a name, a `Table` or mapped class of SQLAlchemy, a model of Django.

Each gives the name of the table and of its columns, and what a value becomes on its way in and out. A module of a
framework is loaded only when something of it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from leasehold.sql.wires import Wire

__all__ = ["Columns", "columns_of"]


class Columns(Protocol):
    """A table, and what it calls its columns."""

    @property
    def table(self) -> str | tuple[str, str]:
        """Its name, or its schema and its name."""

    def column(self, name: str) -> str:
        """The column that is meant."""

    def stored(self, name: str, value: object) -> object:
        """What the driver is given for a value of that column."""

    def loaded(self, column: str, value: object) -> tuple[str, object]:
        """How a column is called here, and its value as the program knows it."""

    def refresh(self, row: dict[str, Any]) -> None:
        """Tell the object that stands for this row, if a session holds one, what was read."""

    def forget(self, where: Mapping[str, Any], names: Iterable[str]) -> None:
        """Let the object for this row, if a session holds one, read these columns again."""


class PlainColumns:
    """A table by its name: everything is taken as it is."""

    def __init__(self, table: str | tuple[str, str]) -> None:
        self.table = table

    def column(self, name: str) -> str:
        return name

    def stored(self, name: str, value: object) -> object:  # noqa: ARG002 - a port
        return value

    def loaded(self, column: str, value: object) -> tuple[str, object]:
        return column, value

    def refresh(self, row: dict[str, Any]) -> None:
        pass

    def forget(self, where: Mapping[str, Any], names: Iterable[str]) -> None:
        pass


def columns_of(table: Any, wire: Wire) -> Columns:
    """The columns of whatever the user has named the table by."""
    if isinstance(table, str):
        return PlainColumns(table)
    if isinstance(table, tuple):
        if len(table) != 2 or not all(isinstance(part, str) for part in table):
            raise ConfigurationError(f"a table is named by its name, or by its schema and its name, not {table!r}")
        return PlainColumns((table[0], table[1]))
    if hasattr(table, "__mapper__") or hasattr(table, "__clause_element__") or hasattr(table, "primary_key"):
        return cast("Columns", import_module("leasehold.sql.tables.sqlalchemy").columns(table, wire))
    if hasattr(table, "_meta"):
        return cast("Columns", import_module("leasehold.sql.tables.django").columns(table, wire))
    raise ConfigurationError(
        f"{table!r} is no table: give its name, a pair of schema and name, a Table or mapped class of SQLAlchemy, or a "
        "model of Django"
    )
