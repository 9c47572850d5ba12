"""The wire for SQLAlchemy: `Connection` and `Session`; what is async there runs its blocking twin through `run_sync`.

It knows the drivers below only as far as needed to tell whether they commit by themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session, scoped_session

from leasehold._words import kind_of
from leasehold.errors import ConfigurationError
from leasehold.sql.wires import Answer, Transaction
from leasehold.sql.wires.names import in_style
from leasehold.sql.wires.sqlite3 import sqlite_transaction

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SqlalchemyWire", "async_twin", "make_wire"]


class SqlalchemyWire:
    """A `Connection`, and the `Session` that it belongs to if there is one."""

    is_async = False

    def __init__(self, connection: Connection, session: Session | None) -> None:
        self._connection = connection
        self._session = session

    @property
    def connection(self) -> Connection:
        return self._connection

    @property
    def session(self) -> Session | None:
        return self._session

    @property
    def dialect(self) -> str:
        name = self._connection.dialect.name
        return "mysql" if name == "mariadb" else name

    @property
    def driver(self) -> Any:
        return self._connection.connection.driver_connection

    @property
    def holds_objects(self) -> bool:
        """Whether the session has objects whose values it would not read again."""
        if self._session is None:
            return False
        return any(not state.expired for state in self._session.identity_map.all_states())

    def transaction(self) -> Transaction:
        driver = self.driver
        if self.dialect == "sqlite":
            return sqlite_transaction(driver)
        if type(driver).__module__.partition(".")[0] == "psycopg":
            from leasehold.sql.wires.psycopg import psycopg_transaction  # noqa: PLC0415 - it is loaded already

            return psycopg_transaction(driver)
        if self.dialect == "mysql":
            from leasehold.sql.wires.mysql import mysql_transaction  # noqa: PLC0415

            return mysql_transaction(driver)
        if getattr(self._connection.connection.dbapi_connection, "autocommit", None) is True:
            return Transaction.AUTOCOMMIT
        return Transaction.OPEN if self._connection.in_transaction() else Transaction.OPENS

    async def query(self, statement: str, values: Mapping[str, object]) -> Answer:
        # Handed to the driver as it is: what SQLAlchemy reads out of a text could be part of a name.
        text, bound = in_style(statement, values, self._connection.dialect.paramstyle)
        result = self._connection.exec_driver_sql(text, bound)
        if not result.returns_rows:
            return Answer([], result.rowcount)
        return Answer([tuple(row) for row in result], result.rowcount, tuple(result.keys()))


def async_twin(tx: object) -> Any | None:
    """The object with `run_sync` that this is or stands for; None if it blocks."""
    if type(tx).__name__ == "async_scoped_session" and callable(tx):  # not imported: that would load asyncio
        tx = tx()
    return tx if hasattr(tx, "run_sync") else None


def make_wire(tx: object) -> SqlalchemyWire:
    """For a connection or session; a session takes its connection now."""
    if async_twin(tx) is not None:
        raise ConfigurationError(f"{kind_of(tx)} is async: write await guard_async(tx, lease)")
    if isinstance(tx, scoped_session):
        tx = tx()
    if isinstance(tx, Session):
        return SqlalchemyWire(tx.connection(), tx)
    if isinstance(tx, Connection):
        return SqlalchemyWire(tx, None)
    raise ConfigurationError(
        f"leasehold.sql takes a Connection or Session of SQLAlchemy, not {kind_of(tx)}: "
        "with engine.begin() as tx: guard(tx, lease)"
    )
