"""Cleaning away what is not needed any more, a slice of the names at a time, by a worker on an idle connection.

A name's row carries its fence, so it may go only when the server's clock alone gives higher fences than that, with a
day to spare for a clock that is set back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._backends.mysql import errors
from leasehold._backends.mysql import statements as sql
from leasehold._backends.mysql.packets import binary
from leasehold._backends.mysql.rows import names_of
from leasehold.kit import rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._backends.mysql.connection import Connection
    from leasehold._backends.mysql.packets import Result
    from leasehold.spi import Runtime

__all__ = ["Cleaning"]

CLEAN_EVERY = 60.0
SLICE = 1000  # names in one go
SPARE = 86_400 * sql.MICRO


class Cleaning:
    """Walks round and round through the names."""

    def __init__(self, label: str, runtime: Runtime) -> None:
        self._label = label
        self._runtime = runtime
        self._due = runtime.now() + CLEAN_EVERY * runtime.random()
        self._positions = {"lock": b"", "record": b""}

    def is_due(self) -> bool:
        now = self._runtime.now()
        if now < self._due:
            return False
        self._due = now + CLEAN_EVERY
        return True

    async def run(self, connection: Connection, /) -> None:
        after = self._positions["lock"]
        last = await self._slice(connection, "lock")
        if last:
            await self._expire(connection, after, last)
            await self._query(connection, _delete(b"leasehold_lock", b"shape = 0", after, last))
        after = self._positions["record"]
        last = await self._slice(connection, "record")
        if last:
            await self._query(connection, _delete(b"leasehold_record", b"expires <= " + sql.NOW, after, last))

    async def _slice(self, connection: Connection, table: str) -> bytes:
        """The last name of the next slice; nothing if there is none. After the last one it starts again."""
        text = (
            b"SELECT COUNT(*), MAX(name) FROM "
            b"(SELECT name FROM leasehold_%b WHERE name > %b ORDER BY name LIMIT %d) AS slice"
        ) % (table.encode(), binary(self._positions[table]), SLICE)
        ((number, last),) = (await self._query(connection, text))[0].rows
        self._positions[table] = (last or b"") if int(number or 0) == SLICE else b""
        return last or b""

    async def _expire(self, connection: Connection, after: bytes, last: bytes) -> None:
        """Remove what has run out; a name that another client changes meanwhile is left to it."""
        (result,) = await self._query(connection, sql.read_names(after + b"\x00", last + b"\x00"))
        for rows in names_of(result.rows, self._label):
            rules.expire(rows)
            change = rows.change()
            if change is not None:
                await self._query(connection, change.text)

    async def _query(self, connection: Connection, text: bytes) -> Sequence[Result]:
        answer = await connection.query(text)
        if answer.error is not None:
            if answer.results:
                await connection.query(b"ROLLBACK")
            raise errors.translated(answer.error, self._label)
        return answer.results


def _delete(table: bytes, condition: bytes, after: bytes, last: bytes) -> bytes:
    return b"DELETE FROM %b WHERE name > %b AND name <= %b AND %b AND fence < %b - %d" % (
        table,
        binary(after),
        binary(last),
        condition,
        sql.NOW,
        SPARE,
    )
