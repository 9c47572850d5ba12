"""`insert_once`: a row whose key is taken by the first insert; the others get the row that is there.

For slots, names and keys that may exist once. A unique constraint decides, and not a look before the insert, which two
could take together. Each database has a module of its own, which is loaded when it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from leasehold.errors import ConfigurationError, RetryTransaction, UniqueConflict
from leasehold.sql.calls import call, call_async
from leasehold.sql.tables.rows import Rows, check_key, check_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leasehold.sql.tables.rows import Row
    from leasehold.sql.wires import Wire

__all__ = ["Dialect", "InsertedOnce", "Taken", "insert_once", "insert_once_async"]

DIALECTS = {
    "mysql": "leasehold.sql.inserts.mysql",
    "postgresql": "leasehold.sql.inserts.postgresql",
    "sqlite": "leasehold.sql.inserts.sqlite",
}
TRIES = 5  # a row that was in the way and is gone when it is looked for: deleted in between


class InsertedOnce(NamedTuple):
    """Whether this call has inserted the row, and the row: the new one, or the one that was there."""

    inserted: bool
    row: Row


@dataclass(frozen=True, slots=True)
class Taken:
    """An insert that a unique constraint refused."""

    by_key: bool  # surely the one that was named
    constraint: str | None = None
    columns: tuple[str, ...] = ()


class Dialect(Protocol):
    """A module that inserts in one kind of database."""

    async def insert(self, wire: Wire, rows: Rows, values: Mapping[str, Any], key: Sequence[str]) -> Row | Taken:
        """Insert the row, or say what is in the way; the transaction can go on after both."""


def insert_once(tx: Any, table: Any, values: Mapping[str, Any], *, key: str | Sequence[str]) -> InsertedOnce:
    """Insert a row unless one with the same key is there; `(inserted, row)`.

        inserted, row = insert_once(tx, "bookings", {"room": 7, "day": day, "guest": guest}, key=("room", "day"))

    `tx` and `table` are as for `cas_update`. `key` names the columns of a primary key or unique constraint, exactly
    those, and `values` has a value for each. While another transaction is inserting the same key, this one waits for
    its end. It works inside a transaction, which it leaves usable whatever happens, and outside.

    Promises that of all inserts of a key one gets `inserted`, and every other one gets that one's row. Raises
    `UniqueConflict` when another unique constraint forbids the row and no row has this key; `ConfigurationError` when
    the key has no such constraint; `RetryTransaction` when the row was inserted after the moment that this transaction
    sees (PostgreSQL at REPEATABLE READ). Every other error of the database passes through: a missing value or a text
    that is too long is never taken for a row that exists.
    """
    return call(tx, "insert_once", _Insert(table, values, _names(key)).carry_out)


async def insert_once_async(
    tx: Any, table: Any, values: Mapping[str, Any], *, key: str | Sequence[str]
) -> InsertedOnce:
    """The same as `insert_once` for asyncio; see `guard_async` for what it takes."""
    return await call_async(tx, "insert_once", _Insert(table, values, _names(key)).carry_out)


def _names(key: str | Sequence[str]) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(key)


@dataclass(frozen=True, slots=True)
class _Insert:
    """One row, checked before any I/O."""

    table: Any
    values: Mapping[str, Any]
    key: tuple[str, ...]

    def __post_init__(self) -> None:
        check_values(self.values)
        missing = [name for name in self.key if name not in self.values]
        if not self.key or missing:
            raise ConfigurationError(
                f"key= must name columns that have a value; {', '.join(map(repr, missing)) or 'it is empty'}"
            )
        check_key(self._where())

    def _where(self) -> dict[str, Any]:
        return {name: self.values[name] for name in self.key}

    async def carry_out(self, wire: Wire) -> InsertedOnce:
        if wire.dialect not in DIALECTS:
            raise ConfigurationError(f"no insert_once in {wire.dialect!r}; there is in {', '.join(sorted(DIALECTS))}")
        dialect = cast("Dialect", import_module(DIALECTS[wire.dialect]))
        rows = Rows(wire, self.table)
        where = self._where()
        for _ in range(TRIES):
            answer = await dialect.insert(wire, rows, self.values, self.key)
            if not isinstance(answer, Taken):
                return InsertedOnce(inserted=True, row=answer)
            found = rows.one(rows.read(await wire.query(rows.select_present(where), rows.bound("key", where))), where)
            if found is not None:
                return InsertedOnce(inserted=False, row=found)
            if not answer.by_key:
                raise self._other(rows, answer)
        raise RetryTransaction(
            f"the row {where!r} of {rows.table} was there at every insert and gone at every look: others insert and "
            "delete it all the time, or this connection may not see it. Roll back and run the transaction again"
        )

    def _other(self, rows: Rows, taken: Taken) -> UniqueConflict:
        named = taken.constraint or ", ".join(taken.columns) or "which the database does not name"
        return UniqueConflict(
            f"nothing was inserted into {rows.table}: another row meets this one by another constraint ({named}),"
            f" and none has the key {self._where()!r}",
            table=rows.table,
            constraint=taken.constraint,
            columns=taken.columns,
        )
