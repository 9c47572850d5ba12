"""Models of Django: names, and what a field makes of a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.exceptions import FieldDoesNotExist

from leasehold.errors import ConfigurationError
from leasehold.sql.wires.django import DjangoWire

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from leasehold.sql.wires import Wire

__all__ = ["DjangoColumns", "columns"]


class DjangoColumns:
    """The table of a model, by the names of its fields; `pk` is the primary key, whatever its name."""

    def __init__(self, wire: DjangoWire, model: Any) -> None:
        self._connection = wire.connection
        self._meta = model._meta  # noqa: SLF001 - which Django documents
        self.table: str | tuple[str, str] = self._meta.db_table
        self._by_column = {field.column: field for field in self._meta.local_concrete_fields}

    def column(self, name: str) -> str:
        return str(self._field(name).column)

    def _field(self, name: str) -> Any:
        try:
            field = self._meta.pk if name == "pk" else self._meta.get_field(name)
        except FieldDoesNotExist:
            field = None
        if field is None or self._by_column.get(getattr(field, "column", None)) is not field:
            raise ConfigurationError(f"{self.table!r} has no field {name!r} with a column of its own")
        return field

    def stored(self, name: str, value: object) -> object:
        return self._field(name).get_db_prep_save(value, self._connection)

    def loaded(self, column: str, value: object) -> tuple[str, object]:
        field = self._by_column.get(column)
        if field is None:
            return column, value
        place = field.get_col(self._meta.db_table)
        for convert in (*self._connection.ops.get_db_converters(place), *place.get_db_converters(self._connection)):
            value = convert(value, place, self._connection)
        return str(field.attname), value

    def refresh(self, row: dict[str, Any]) -> None:
        """Django keeps no objects by row."""

    def forget(self, where: Mapping[str, Any], names: Iterable[str]) -> None:
        """Django keeps no objects by row."""


def columns(model: Any, wire: Wire) -> DjangoColumns:
    """For a model whose rows are in one table."""
    if not isinstance(wire, DjangoWire):
        raise ConfigurationError(
            f"{model!r} belongs to Django, and the connection does not: name the table by its name"
        )
    return DjangoColumns(wire, model)
