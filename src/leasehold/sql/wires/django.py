"""The wire for Django: a connection of `django.db`, or the alias of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionProxy

from leasehold._words import kind_of
from leasehold.errors import ConfigurationError
from leasehold.sql.wires import Answer, Transaction, column_names
from leasehold.sql.wires.mysql import mysql_transaction

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DjangoWire", "make_wire"]


class DjangoWire:
    """A connection of `django.db.connections`, which belongs to this thread."""

    is_async = False
    holds_objects = False

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def connection(self) -> Any:
        return self._connection

    @property
    def dialect(self) -> str:
        return str(self._connection.vendor)

    @property
    def driver(self) -> Any:
        self._connection.ensure_connection()
        return self._connection.connection

    def transaction(self) -> Transaction:
        if self.dialect == "mysql":  # atomic() begins nothing there, so the driver knows more
            return mysql_transaction(self.driver)
        if self._connection.in_atomic_block:
            return Transaction.OPEN
        return Transaction.AUTOCOMMIT if self._connection.get_autocommit() else Transaction.OPENS

    async def query(self, statement: str, values: Mapping[str, object]) -> Answer:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, dict(values))
            rows = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
            return Answer(rows, cursor.rowcount, column_names(cursor.description))


def make_wire(tx: Any) -> DjangoWire:
    """For `django.db.connection`, an entry of `django.db.connections`, or an alias such as "default"."""
    alias = tx.alias if isinstance(tx, ConnectionProxy) else tx
    connection = connections[alias] if isinstance(alias, str) else tx
    if not isinstance(connection, BaseDatabaseWrapper):
        raise ConfigurationError(
            f"leasehold.sql takes a connection of django.db or the alias of one, not {kind_of(tx)}: "
            "with transaction.atomic(using=alias): guard(alias, lease)"
        )
    return DjangoWire(connection)
