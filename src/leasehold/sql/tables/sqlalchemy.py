"""Tables and mapped classes of SQLAlchemy: names, types, and the object that a session holds for a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Table
from sqlalchemy import inspect as look_at
from sqlalchemy.orm import Mapper
from sqlalchemy.orm.attributes import set_committed_value

from leasehold.errors import ConfigurationError
from leasehold.sql.wires.sqlalchemy import SqlalchemyWire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from leasehold.sql.wires import Wire

__all__ = ["SqlalchemyColumns", "columns"]


class SqlalchemyColumns:
    """A table whose columns have types; by the names of a mapped class, where there is one."""

    def __init__(self, wire: SqlalchemyWire, table: Table, mapper: Mapper[Any] | None) -> None:
        self.table: str | tuple[str, str] = table.name if table.schema is None else (table.schema, table.name)
        self._dialect = wire.connection.dialect
        self._session = wire.session
        self._mapper = mapper
        self._by_key: dict[str, Column[Any]] = dict(table.columns.items()) if mapper is None else _mapped(mapper)
        self._key_of = {column.name: key for key, column in self._by_key.items()}

    def column(self, name: str) -> str:
        return str(self._column(name).name)

    def _column(self, name: str) -> Column[Any]:
        if name not in self._by_key:
            raise ConfigurationError(
                f"{self.table!r} has no column {name!r}; there are {', '.join(sorted(self._by_key))}"
            )
        return self._by_key[name]

    def stored(self, name: str, value: object) -> object:
        kind = self._column(name).type.dialect_impl(self._dialect)
        write: Callable[[object], object] | None = kind.bind_processor(self._dialect)
        return value if write is None else write(value)

    def loaded(self, column: str, value: object) -> tuple[str, object]:
        key = self._key_of.get(column)
        if key is None:  # the database has a column that the program does not know
            return column, value
        kind = self._by_key[key].type.dialect_impl(self._dialect)
        read: Callable[[object], object] | None = kind.result_processor(self._dialect, None)
        return key, value if read is None else read(value)

    def refresh(self, row: dict[str, Any]) -> None:
        """A session goes on giving out what it has read before; here the present values are known."""
        held = self._held(row)
        if held is None:
            return
        changed = {key for key in self._by_key if look_at(held).attrs[key].history.has_changes()}
        if changed:
            raise ConfigurationError(
                f"this session has changed {', '.join(sorted(changed))} of this row of {self.table!r} before: what "
                "that rests on may be out of date. Flush it, or call this before the change"
            )
        for key in self._by_key:
            if key in row:
                set_committed_value(held, key, row[key])

    def forget(self, where: Mapping[str, Any], names: Iterable[str]) -> None:
        held = self._held(where)
        if held is not None and self._session is not None:
            self._session.expire(held, list(names))

    def _held(self, row: Mapping[str, Any]) -> object | None:
        """The object that the session holds for the row, if its primary key is known."""
        if self._session is None or self._mapper is None:
            return None
        keys = [self._key_of[column.name] for column in self._mapper.primary_key]
        if not all(key in row for key in keys):
            return None
        identity = self._mapper.identity_key_from_primary_key(tuple(row[key] for key in keys))
        held: object | None = self._session.identity_map.get(identity)
        return held


def _mapped(mapper: Mapper[Any]) -> dict[str, Column[Any]]:
    found = ((attribute.key, attribute.columns[0]) for attribute in mapper.column_attrs)
    return {key: column for key, column in found if isinstance(column, Column)}


def columns(table: Any, wire: Wire) -> SqlalchemyColumns:
    """For a `Table`, or for a mapped class whose rows are in one table."""
    if not isinstance(wire, SqlalchemyWire):
        raise ConfigurationError(
            f"{table!r} belongs to SQLAlchemy, and the connection does not: name the table by its name"
        )
    if isinstance(table, Table):
        return SqlalchemyColumns(wire, table, None)
    mapper = look_at(table, raiseerr=False)
    if not isinstance(mapper, Mapper) or not isinstance(mapper.local_table, Table) or len(mapper.tables) != 1:
        raise ConfigurationError(f"{table!r} is no Table, and no mapped class whose rows are in exactly one table")
    return SqlalchemyColumns(wire, mapper.local_table, mapper)
