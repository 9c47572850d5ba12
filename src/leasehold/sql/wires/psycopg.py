"""The wire for psycopg 3: connections, cursors and transaction blocks, blocking and asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from leasehold.errors import ConfigurationError
from leasehold.sql.wires import Answer, Transaction, column_names

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AsyncPsycopgWire", "PsycopgWire", "make_wire", "psycopg_transaction"]

AnyConnection = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
C = TypeVar("C", bound=AnyConnection)


def psycopg_transaction(driver: AnyConnection) -> Transaction:
    """What happens to the next statement of such a connection."""
    if driver.info.pipeline_status != PipelineStatus.OFF:
        raise ConfigurationError(
            "this connection is in pipeline mode, where an answer would come after what depends on it; call guard() or "
            "attempt() before entering the pipeline"
        )
    if driver.info.transaction_status != TransactionStatus.IDLE:
        return Transaction.OPEN
    return Transaction.AUTOCOMMIT if driver.autocommit else Transaction.OPENS


class _Base(Generic[C]):
    dialect = "postgresql"
    holds_objects = False

    def __init__(self, connection: C) -> None:
        self.driver: C = connection

    def transaction(self) -> Transaction:
        return psycopg_transaction(self.driver)


class PsycopgWire(_Base[psycopg.Connection[Any]]):
    """A `psycopg.Connection`."""

    is_async = False

    async def query(self, statement: str, values: Mapping[str, object]) -> Answer:
        # A cursor of our own: the connection's default may give other rows, or take values in another form.
        with psycopg.Cursor(self.driver, row_factory=tuple_row) as cursor:
            cursor.execute(statement, values)
            rows = cursor.fetchall() if cursor.description else []
            return Answer(rows, cursor.rowcount, column_names(cursor.description))


class AsyncPsycopgWire(_Base[psycopg.AsyncConnection[Any]]):
    """A `psycopg.AsyncConnection`."""

    is_async = True

    async def query(self, statement: str, values: Mapping[str, object]) -> Answer:
        async with psycopg.AsyncCursor(self.driver, row_factory=tuple_row) as cursor:
            await cursor.execute(statement, values)
            rows = await cursor.fetchall() if cursor.description else []
            return Answer(rows, cursor.rowcount, column_names(cursor.description))


def make_wire(tx: Any) -> PsycopgWire | AsyncPsycopgWire:
    """For a connection, or for a cursor or transaction block of one."""
    kinds = (psycopg.Connection, psycopg.AsyncConnection)
    connection = tx if isinstance(tx, kinds) else getattr(tx, "connection", None)
    if isinstance(connection, psycopg.Connection):
        return PsycopgWire(connection)
    if isinstance(connection, psycopg.AsyncConnection):
        return AsyncPsycopgWire(connection)
    raise ConfigurationError(
        f"leasehold.sql takes a connection, cursor or transaction of psycopg, not {type(tx).__name__}"
    )
