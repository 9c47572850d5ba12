"""`lock_row`, `lock_rows`, `lock_free_rows`: rows that no other writes until the end of this transaction.

Each database has a module of its own, which is loaded when it is used. Several rows are locked one after the other in
the order of their keys, whatever order they were named in, so that two transactions cannot wait for each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from leasehold.errors import ConfigurationError
from leasehold.sql.calls import call, call_async, require_transaction
from leasehold.sql.row_locks.lock_request import LockRequest, check_free, in_order, make_request
from leasehold.sql.tables.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leasehold._durations import Duration
    from leasehold.sql.row_locks.lock_request import Dialect, Free
    from leasehold.sql.tables.rows import Row
    from leasehold.sql.wires import Transaction, Wire

__all__ = ["lock_free_rows", "lock_free_rows_async", "lock_row", "lock_row_async", "lock_rows", "lock_rows_async"]

DIALECTS = {
    "mysql": "leasehold.sql.row_locks.mysql",
    "postgresql": "leasehold.sql.row_locks.postgresql",
    "sqlite": "leasehold.sql.row_locks.sqlite",
}


def lock_row(
    tx: Any, table: Any, where: Mapping[str, Any], *, share: bool = False, wait: Duration | None = None
) -> Row | None:
    """Lock one row until the end of the transaction, and give it as it is now; None if there is no such row.

    `tx` is a connection, cursor or session inside a transaction, as for `guard`. `table` is a name, a pair of schema
    and name, a `Table` or mapped class of SQLAlchemy, or a model of Django. `where` names the row by its key. `share`:
    others may lock it shared as well, and none may write it. `wait`: how long to wait for another that has it; 0: not
    at all; without it, as long as the database allows. MySQL and MariaDB count in whole seconds.

    Decide on the row that this gives, and not on what was read before; other rows are as your level of isolation shows
    them. The object that a SQLAlchemy session holds for this row of a mapped class is given the same values.

    Raises `RowBusy` when another has it for too long; with `wait`, the transaction is then as it was before the call.
    `RetryTransaction` for a deadlock, and where the row has changed since the moment that this transaction sees (at
    REPEATABLE READ of PostgreSQL, and in SQLite). `ConfigurationError` outside a transaction, where the lock would be
    gone at once. SQLite has no row locks: there this takes the write lock of the whole file, and `share` is refused.
    """
    return call(tx, "lock_row", _These(table, [where], make_request(share=share, wait=wait)).lock)[0]


async def lock_row_async(
    tx: Any, table: Any, where: Mapping[str, Any], *, share: bool = False, wait: Duration | None = None
) -> Row | None:
    """The same as `lock_row` for asyncio; see `guard_async` for what it takes."""
    these = _These(table, [where], make_request(share=share, wait=wait))
    return (await call_async(tx, "lock_row", these.lock))[0]


def lock_rows(
    tx: Any,
    table: Any,
    keys: Iterable[Mapping[str, Any]],
    *,
    share: bool = False,
    wait: Duration | None = None,
    skip_locked: bool = False,
) -> list[Row | None]:
    """Lock several rows, in the order of their keys; gives them in the order in which they were named.

    None stands for a row that does not exist; with `skip_locked`, also for one that another has locked. `wait` is for
    all of them together. All else is as for `lock_row`. One statement per row: a single statement locks in an order
    that the database picks. Two callers lock in the same order if they write the same keys in the same way: the same
    columns, the same types, the same case where the database ignores it. With `wait`, `RowBusy` leaves none of them
    locked in PostgreSQL; MySQL and MariaDB keep those that they had until the end of the transaction.
    """
    these = _These(table, list(keys), make_request(share=share, wait=wait, skip_locked=skip_locked))
    return call(tx, "lock_rows", these.lock)


async def lock_rows_async(
    tx: Any,
    table: Any,
    keys: Iterable[Mapping[str, Any]],
    *,
    share: bool = False,
    wait: Duration | None = None,
    skip_locked: bool = False,
) -> list[Row | None]:
    """The same as `lock_rows` for asyncio."""
    these = _These(table, list(keys), make_request(share=share, wait=wait, skip_locked=skip_locked))
    return await call_async(tx, "lock_rows", these.lock)


def lock_free_rows(
    tx: Any, table: Any, where: Mapping[str, Any], *, limit: int = 1, order_by: str | Sequence[str], share: bool = False
) -> list[Row]:
    """Lock at most so many rows that fit and are not locked, and give them: `SKIP LOCKED`.

    `where` has columns and their values, and may be empty; `order_by` says which to take first. What others have locked
    is passed over at once, so an empty list does not mean that no row fits. SQLite, which locks the whole file, has
    nothing to pass over, and refuses.
    """
    free = check_free(where, limit, order_by)
    return call(tx, "lock_free_rows", _Free(table, free, LockRequest(bool(share), skip_locked=True)).lock)


async def lock_free_rows_async(
    tx: Any, table: Any, where: Mapping[str, Any], *, limit: int = 1, order_by: str | Sequence[str], share: bool = False
) -> list[Row]:
    """The same as `lock_free_rows` for asyncio."""
    free = check_free(where, limit, order_by)
    return await call_async(tx, "lock_free_rows", _Free(table, free, LockRequest(bool(share), skip_locked=True)).lock)


@dataclass(frozen=True, slots=True)
class _These:
    """Rows that were named."""

    table: Any
    keys: list[Mapping[str, Any]]
    request: LockRequest

    def __post_init__(self) -> None:
        in_order(self.keys)

    async def lock(self, wire: Wire) -> list[Row | None]:
        dialect, state = _ready(wire, "lock_row")
        rows = Rows(wire, self.table)
        ordered = in_order(self.keys)
        found = await dialect.lock_these(wire, state, rows, ordered, self.request)
        for row in found:
            if row is not None:
                rows.refresh(row)
        return [found[ordered.index(key)] for key in self.keys]


@dataclass(frozen=True, slots=True)
class _Free:
    """Rows that fit, and are not locked."""

    table: Any
    free: Free
    request: LockRequest

    async def lock(self, wire: Wire) -> list[Row]:
        dialect, _ = _ready(wire, "lock_free_rows")
        rows = Rows(wire, self.table)
        found = await dialect.lock_free(wire, rows, self.free, self.request)
        for row in found:
            rows.refresh(row)
        return found


def _ready(wire: Wire, name: str) -> tuple[Dialect, Transaction]:
    if wire.dialect not in DIALECTS:
        raise ConfigurationError(f"no row locks in {wire.dialect!r}; there are in {', '.join(sorted(DIALECTS))}")
    state = require_transaction(wire, name, "the lock would be gone at once")
    return cast("Dialect", import_module(DIALECTS[wire.dialect])), state
