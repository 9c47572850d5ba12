"""What a caller wants to lock, checked before any I/O; and what the errors of a database mean for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from leasehold._durations import optional_seconds
from leasehold.errors import ConfigurationError, RetryTransaction, RowBusy
from leasehold.sql.tables.rows import check_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TypeAlias

    from leasehold._durations import Duration
    from leasehold.sql.tables.rows import Row, Rows
    from leasehold.sql.wires import Transaction, Wire

    Explain: TypeAlias = Callable[[Exception, Rows, Mapping[str, Any], "LockRequest"], None]
    """Raises an error that says what to do, for those that are to be expected."""

__all__ = [
    "Dialect",
    "Free",
    "LockRequest",
    "changed_since",
    "check_free",
    "deadlock",
    "in_order",
    "lock_one",
    "lock_some",
    "make_request",
]


@dataclass(frozen=True, slots=True)
class LockRequest:
    """How to lock."""

    share: bool
    wait: float | None = None  # seconds in all; None: as long as the database allows
    skip_locked: bool = False
    begun: float = field(default_factory=monotonic)

    def left(self) -> float | None:
        """The seconds that are left to wait."""
        return None if self.wait is None else max(0.0, self.begun + self.wait - monotonic())

    def busy(self, rows: Rows, where: Mapping[str, Any], limit: str, then: str) -> RowBusy:
        """Another transaction has the row; `limit` says how long this one waited, `then` what to do."""
        return RowBusy(
            f"the row {dict(where)!r} of {rows.table} is locked by another transaction ({limit}): {then}",
            table=rows.table,
            key=dict(where),
            limit=limit,
            waited=monotonic() - self.begun,
        )


class Dialect(Protocol):
    """A module that locks rows in one kind of database."""

    async def lock_these(
        self, wire: Wire, state: Transaction, rows: Rows, keys: Sequence[Mapping[str, Any]], request: LockRequest
    ) -> list[Row | None]:
        """Lock the rows with these keys, in this order: all of them, or none."""

    async def lock_free(self, wire: Wire, rows: Rows, free: Free, request: LockRequest) -> list[Row]:
        """Lock rows that are not locked."""


@dataclass(frozen=True, slots=True)
class Free:
    """Which rows to look among."""

    where: Mapping[str, Any]
    limit: int
    order_by: tuple[str, ...]

    def select(self, rows: Rows, ending: str) -> str:
        """The statement that reads them, with the words that lock."""
        condition = f"WHERE {rows.fits(self.where)} " if self.where else ""
        order = ", ".join(rows.qualified(each) for each in self.order_by)
        return f"SELECT {rows.everything()} FROM {rows.name} {condition}ORDER BY {order} LIMIT {self.limit}{ending}"  # noqa: S608 - names are quoted


def check_free(where: Mapping[str, Any], limit: int, order_by: str | Sequence[str]) -> Free:
    """Check what the caller gave."""
    names = (order_by,) if isinstance(order_by, str) else tuple(order_by)
    if limit < 1 or not names:
        raise ConfigurationError(f"limit must be at least 1, and order_by must name columns, not {limit!r}, {names!r}")
    return Free(check_key(where) if where else {}, limit, names)


async def lock_one(
    wire: Wire, rows: Rows, key: Mapping[str, Any], request: LockRequest, *, words: str, explain: Explain
) -> Row | None:
    """Read the row with this key, with the words that lock it."""
    try:
        return rows.one(rows.read(await wire.query(rows.select(key, words), rows.bound("key", key))), key)
    except Exception as error:
        explain(error, rows, key, request)
        raise


async def lock_some(
    wire: Wire, rows: Rows, free: Free, request: LockRequest, *, words: str, explain: Explain
) -> list[Row]:
    """Read rows that are not locked, with the words that lock them."""
    try:
        return rows.read(await wire.query(free.select(rows, words), rows.bound("key", free.where)))
    except Exception as error:
        explain(error, rows, free.where, request)
        raise


def make_request(*, share: bool, wait: Duration | None, skip_locked: bool = False) -> LockRequest:
    """Check what the caller gave."""
    limit = optional_seconds(wait, "wait")
    if skip_locked and limit is not None:
        raise ConfigurationError("skip_locked does not wait for any row, so wait= has no meaning there; leave it out")
    return LockRequest(bool(share), limit, bool(skip_locked))


def in_order(keys: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Each key once, in the one order in which all transactions lock."""
    checked = [check_key(key) for key in keys]
    if len({tuple(sorted(key)) for key in checked}) > 1:
        raise ConfigurationError("all keys must name the same columns: otherwise there is no order to lock them in")
    try:
        ordered = sorted(checked, key=_values)
    except TypeError as error:
        raise ConfigurationError(
            f"these keys cannot be brought into an order ({error}), so two transactions could deadlock: give all "
            "values of a column as one type"
        ) from error
    return [key for place, key in enumerate(ordered) if place == 0 or _values(ordered[place - 1]) != _values(key)]


def _values(key: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(key[name] for name in sorted(key))


def changed_since(rows: Rows, where: Mapping[str, Any]) -> RetryTransaction:
    """A lock on a row that this transaction cannot see as it is would be worth nothing."""
    return RetryTransaction(
        f"the row {dict(where)!r} of {rows.table} was changed after the moment that this transaction sees; roll back, "
        "and run the whole transaction again, with the lock as its first statement"
    )


def deadlock(rows: Rows, where: Mapping[str, Any]) -> RetryTransaction:
    """Two waited for each other, and the database ended this one."""
    return RetryTransaction(
        f"this transaction and another waited for each other's locks, here for the row {dict(where)!r} of "
        f"{rows.table}; roll back and run it again. lock_rows takes several rows in a fixed order, so that this cannot "
        "happen"
    )
