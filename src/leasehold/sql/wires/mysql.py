"""The wire for MySQL and MariaDB: connections and cursors of PyMySQL and mysqlclient, and of aiomysql and asyncmy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold._words import kind_of
from leasehold.errors import ConfigurationError
from leasehold.sql.wires import Answer, Transaction, column_names

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AsyncMysqlWire", "MysqlWire", "make_wire", "mysql_transaction"]

_ASYNC = ("aiomysql", "asyncmy")
_IN_TRANSACTION = 1  # a bit of the status that the server sends with every answer


def mysql_transaction(driver: Any) -> Transaction:
    """What happens to the next statement of such a connection."""
    if _in_transaction(driver):
        return Transaction.OPEN
    return Transaction.AUTOCOMMIT if driver.get_autocommit() else Transaction.OPENS


def _in_transaction(driver: Any) -> bool:
    if hasattr(driver, "get_transaction_status"):  # aiomysql, asyncmy
        return bool(driver.get_transaction_status())
    status = getattr(driver, "server_status", None)  # PyMySQL
    if status is None:  # mysqlclient
        raise ConfigurationError(
            f"a connection of {type(driver).__module__} does not tell whether a transaction is open; use PyMySQL"
        )
    return bool(status & _IN_TRANSACTION)


class _Base:
    dialect = "mysql"
    holds_objects = False

    def __init__(self, connection: Any, rows: Any) -> None:
        self.driver = connection
        self._rows = rows

    def transaction(self) -> Transaction:
        return mysql_transaction(self.driver)


class MysqlWire(_Base):
    """A connection that blocks."""

    is_async = False

    async def query(self, statement: str, values: Mapping[str, object]) -> Answer:
        with self.driver.cursor(self._rows) as cursor:  # the connection's own class may give other rows
            cursor.execute(statement, dict(values))
            rows = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
            return Answer(rows, cursor.rowcount, column_names(cursor.description))


class AsyncMysqlWire(_Base):
    """A connection that is awaited."""

    is_async = True

    async def query(self, statement: str, values: Mapping[str, object]) -> Answer:
        async with self.driver.cursor(self._rows) as cursor:
            await cursor.execute(statement, dict(values))
            rows = [tuple(row) for row in await cursor.fetchall()] if cursor.description else []
            return Answer(rows, cursor.rowcount, column_names(cursor.description))


def make_wire(tx: Any) -> MysqlWire | AsyncMysqlWire:
    """For a connection or a cursor of one."""
    connection = getattr(tx, "connection", tx)
    makers = [kind.__module__.partition(".")[0] for kind in type(connection).__mro__]
    maker = next((each for each in makers if each in ("aiomysql", "asyncmy", "pymysql")), makers[0])
    if not hasattr(connection, "get_autocommit"):
        raise ConfigurationError(f"leasehold.sql takes a connection or cursor of {maker}, not {kind_of(tx)}")
    if maker == "aiomysql":
        import aiomysql  # noqa: PLC0415 - it is loaded already

        return AsyncMysqlWire(connection, aiomysql.Cursor)
    if maker == "asyncmy":
        import asyncmy.cursors  # noqa: PLC0415

        return AsyncMysqlWire(connection, asyncmy.cursors.Cursor)
    if maker == "pymysql":
        import pymysql.cursors  # noqa: PLC0415

        return MysqlWire(connection, pymysql.cursors.Cursor)
    return MysqlWire(connection, None)
