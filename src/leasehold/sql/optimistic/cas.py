"""`cas_update`: write a row only if it was not changed since it was read, which its version column tells.

No lock is held between the read and the write, so a person may think for as long as they like. The loser learns it by
`VersionConflict` what the row is now; `retry` runs a whole unit of work again.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leasehold.errors import ConfigurationError, RetryTransaction, VersionConflict
from leasehold.sql.calls import call, call_async
from leasehold.sql.errors import mysql_code, sqlite_code, sqlstate
from leasehold.sql.tables.rows import Rows, check_key, check_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leasehold.sql.tables.rows import Row
    from leasehold.sql.wires import Wire

__all__ = ["cas_update", "cas_update_async"]

_CHANGED_SINCE_SNAPSHOT = 1020  # MariaDB with innodb_snapshot_isolation


def cas_update(
    tx: Any,
    table: Any,
    values: Mapping[str, Any],
    *,
    where: Mapping[str, Any],
    version: int,
    column: str = "version",
) -> int:
    """Write one row if it still has this version; gives the new version, which is one more.

    `tx` is a connection, cursor or session as for `guard`. `table` is a name, a pair of schema and name, a `Table` or
    mapped class of SQLAlchemy, or a model of Django; with those, columns are named as they name them. `where` names the
    row by its key. `version` is what was read together with the values that the new ones rest on; `column` is a whole
    number, not null. With empty `values` only the version is raised.

    Promises that of all writers that have read the same version one writes, as long as every writer of the row raises
    its version; one statement, so it holds also outside a transaction, and at every level of isolation. Raises
    `VersionConflict` with the row as it is now, or that it is gone; `RetryTransaction` where the database (SQLite) has
    changed since this transaction began to read, and does not tell which row. After either, roll back, read again and
    apply the change to what was read: `retry_on_conflict` does that.
    """
    return call(tx, "cas_update", _Swap(table, values, where, version, column).carry_out)


async def cas_update_async(
    tx: Any,
    table: Any,
    values: Mapping[str, Any],
    *,
    where: Mapping[str, Any],
    version: int,
    column: str = "version",
) -> int:
    """The same as `cas_update` for asyncio; see `guard_async` for what it takes."""
    return await call_async(tx, "cas_update", _Swap(table, values, where, version, column).carry_out)


@dataclass(frozen=True, slots=True)
class _Swap:
    """One write, checked before any I/O."""

    table: Any
    values: Mapping[str, Any]
    where: Mapping[str, Any]
    version: int
    column: str

    def __post_init__(self) -> None:
        check_key(self.where)
        check_values(self.values)
        if isinstance(self.version, bool) or not isinstance(self.version, int):
            raise ConfigurationError(f"version must be the whole number that was read, not {self.version!r}")
        if self.column in self.values or self.column in self.where:
            raise ConfigurationError(f"{self.column!r} is the version: it is compared and raised by cas_update itself")

    async def carry_out(self, wire: Wire) -> int:
        rows = Rows(wire, self.table)
        count = await self._update(wire, rows)
        if count > 1:
            raise rows.several(count, self.where)
        if count == 1:
            rows.forget(self.where, [*self.values, self.column])
            return self.version + 1
        found = await wire.query(rows.select_present(self.where), rows.bound("key", self.where))
        raise self._conflict(rows, rows.one(rows.read(found), self.where))

    async def _update(self, wire: Wire, rows: Rows) -> int:
        changed = ", ".join([*rows.changes(self.values), f"{rows.column(self.column)} = %(raised)s"])
        this_row = f"{rows.fits(self.where)} AND {rows.qualified(self.column)} = %(version)s"
        versions = {"version": self.version, "raised": self.version + 1}
        bound = {**rows.bound("key", self.where), **rows.bound("value", self.values), **versions}
        try:
            # Names are quoted, and everything else is a value.
            return (await wire.query(f"UPDATE {rows.name} SET {changed} WHERE {this_row}", bound)).count  # noqa: S608 - see above
        except Exception as error:
            if sqlite_code(error) == sqlite3.SQLITE_BUSY_SNAPSHOT:
                raise RetryTransaction(
                    "another connection has written to this file since this transaction began to read; roll back, and "
                    "run the whole transaction again"
                ) from error
            if sqlstate(error) == "40001" or mysql_code(error) == _CHANGED_SINCE_SNAPSHOT:
                raise self._unseen(rows) from error
            raise

    def _conflict(self, rows: Rows, current: Row | None) -> VersionConflict:
        this = f"the row {dict(self.where)!r} of {rows.table}"
        if current is None:
            return self._error(rows, f"{this} is gone, or never was; nothing was written", gone=True)
        version = current[self.column]
        if version == self.version:
            what = (
                f"{this} has version {version}, as was expected, and yet was not written: it appeared in this moment, "
                "or a trigger or policy of the database keeps this write from it"
            )
        else:
            what = (
                f"{this} has version {version} by now, and not {self.version}: another writer was first, and nothing "
                "was written. Read it again and apply the change to that; retry_on_conflict does"
            )
        return self._error(rows, what, version=version, current=current)

    def _unseen(self, rows: Rows) -> VersionConflict:
        return self._error(
            rows,
            f"the row {dict(self.where)!r} of {rows.table} was changed after the moment that this transaction sees; "
            "roll back, and run the whole transaction again",
        )

    def _error(
        self,
        rows: Rows,
        message: str,
        *,
        version: int | None = None,
        current: Row | None = None,
        gone: bool = False,
    ) -> VersionConflict:
        return VersionConflict(
            message,
            table=rows.table,
            key=dict(self.where),
            expected=self.version,
            version=version,
            current=current,
            gone=gone,
        )
