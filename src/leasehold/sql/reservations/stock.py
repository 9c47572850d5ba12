"""`Stock`: things of which there are so many and no more, reserved, and then confirmed, cancelled or given back.

Each database has a module of its own, which is loaded when it is used. `wires` knows the drivers. The client of a store
is not needed, and no lease: what is not committed has not been reserved.
"""

from __future__ import annotations

import secrets
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from leasehold._durations import seconds, ttl_seconds
from leasehold.errors import ConfigurationError
from leasehold.sql.calls import call, call_async
from leasehold.sql.idempotency.record import check_text
from leasehold.sql.reservations.record import (
    MOST,
    STATES,
    Reservation,
    Rules,
    StockLevel,
    StockTable,
    check_items,
)
from leasehold.sql.reservations.steps import Ledger, reading, writing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import TypeVar

    from leasehold._durations import Duration
    from leasehold.sql.reservations.record import Item, Items
    from leasehold.sql.reservations.steps import Dialect
    from leasehold.sql.wires import Wire

    T = TypeVar("T")
    Work = Callable[[Wire], Coroutine[Any, Any, T]]

__all__ = ["Reservation", "Stock", "StockLevel", "reservations_schema"]

DIALECTS = {
    "mysql": "leasehold.sql.reservations.mysql",
    "postgresql": "leasehold.sql.reservations.postgresql",
    "sqlite": "leasehold.sql.reservations.sqlite",
}


class Stock:
    """The stock of one kind of things, and what is reserved of it; make one per kind, for any thread or task.

        tickets = Stock("tickets", hold="15m")
        with database.transaction():
            reservation = tickets.reserve(database, {"floor": 2, "parking": 1}, key=order)
        ...                                             # the customer pays
        with database.transaction():
            tickets.confirm(database, reservation.key)  # or cancel

    `hold`: how long a reservation holds what it has taken, by the database's clock. `keep`: how long the record of one
    that is over is kept after that, so that its key is known again. The stock is in a table of leasehold's, or in one
    of yours: `table` (a name, or a pair of schema and name), with a row for each `item` and what is left of it in
    `available`; give that column a `CHECK (available >= 0)`. `schema`: where leasehold's tables are in PostgreSQL, for
    databases in which each schema has data of its own.

    Every call is a part of the transaction that `tx` is in: a connection, cursor or session of psycopg, PyMySQL,
    sqlite3, SQLAlchemy (`Connection`, `Session`) or Django (a connection, or its alias). Names that end in `_async` are
    for asyncio. Writing raises `RetryTransaction` when the whole transaction has to be run again, and
    `ConfigurationError` outside a transaction. Tables are made on first use, but not in MySQL and MariaDB, where
    that would commit your transaction: there `leasehold schema reservations --dialect mysql` prints them.
    """

    def __init__(
        self,
        name: str,
        *,
        hold: Duration = "15m",
        keep: Duration = "7d",
        table: str | tuple[str, str] | None = None,
        item: str = "id",
        available: str = "available",
        schema: str | None = None,
    ) -> None:
        self.name: str = check_text(name, "the name of a stock")
        self._rules = Rules(
            name=self.name,
            hold=ttl_seconds(hold, "hold"),
            keep=seconds(keep, "keep"),
            schema=None if schema is None else check_text(schema, "schema"),
            own=None if table is None else StockTable(table, item, available),
        )

    def restock(self, tx: Any, items: Items) -> None:
        """Add so many of each item, which may be new; a number below zero takes so many away.

        Raises `OutOfStock` when more is taken away than is available: what is held stays held.
        """
        call(tx, "restock", self._restock(items))

    async def restock_async(self, tx: Any, items: Items) -> None:
        """The same as `restock` for asyncio."""
        await call_async(tx, "restock", self._restock(items))

    def reserve(self, tx: Any, items: Items, *, key: str | None = None, hold: Duration | None = None) -> Reservation:
        """Take all of these items out of the stock until they are confirmed, cancelled or the time is over; or nothing.

        `key` makes it one reservation however often it is asked for; without one, a new key is made.

        Raises `OutOfStock` where there is too little, counting holds that are over as given back; `KeyReused` if the
        key was used for other items; `ReservationExpired` or `ReservationRefused` if its reservation is over.
        """
        return call(tx, "reserve", self._reserve(items, key, hold))

    async def reserve_async(
        self, tx: Any, items: Items, *, key: str | None = None, hold: Duration | None = None
    ) -> Reservation:
        """The same as `reserve` for asyncio."""
        return await call_async(tx, "reserve", self._reserve(items, key, hold))

    def confirm(self, tx: Any, key: str, *, late: bool = True) -> Reservation:
        """What is held is sold: it never comes back by itself. Confirming it again changes nothing.

        After the time of the reservation it is still confirmed, if what it held was not given away, or if as much is
        there now; else `ReservationExpired`, and nothing was taken. With `late=False` it is refused as soon as the time
        is over. Raises `ReservationRefused` if it was cancelled, or never made.
        """
        return call(tx, "confirm", self._confirm(key, late=late))

    async def confirm_async(self, tx: Any, key: str, *, late: bool = True) -> Reservation:
        """The same as `confirm` for asyncio."""
        return await call_async(tx, "confirm", self._confirm(key, late=late))

    def cancel(self, tx: Any, key: str) -> Reservation:
        """Give back what is held. Cancelling it again, or after it has expired, changes nothing.

        Raises `ReservationRefused` if it was confirmed, or never made.
        """
        return call(tx, "cancel", self._cancel(key))

    async def cancel_async(self, tx: Any, key: str) -> Reservation:
        """The same as `cancel` for asyncio."""
        return await call_async(tx, "cancel", self._cancel(key))

    def sweep(self, tx: Any, *, limit: int = 100) -> int:
        """Give back at most so many holds that are over, and say how many; records older than `keep` are removed.

        For a job of its own. A reservation that lacks something gives back by itself what it needs, so without a sweep
        nothing stays unsold; but the level of the stock table alone says too little.
        """
        return call(tx, "sweep", self._sweep(limit))

    async def sweep_async(self, tx: Any, *, limit: int = 100) -> int:
        """The same as `sweep` for asyncio."""
        return await call_async(tx, "sweep", self._sweep(limit))

    def available(self, tx: Any, item: Item) -> int:
        """How many could be reserved now; 0 for an item that is not there. It works outside a transaction, too."""
        return call(tx, "available", self._available(item))

    async def available_async(self, tx: Any, item: Item) -> int:
        """The same as `available` for asyncio."""
        return await call_async(tx, "available", self._available(item))

    def levels(self, tx: Any) -> list[StockLevel]:
        """Every item with what is available and what is held. It works outside a transaction, too."""
        return call(tx, "levels", self._reads(Ledger.levels))

    async def levels_async(self, tx: Any) -> list[StockLevel]:
        """The same as `levels` for asyncio."""
        return await call_async(tx, "levels", self._reads(Ledger.levels))

    def find(self, tx: Any, key: str) -> Reservation | None:
        """The reservation of a key, as it is; None if there is none. It works outside a transaction, too."""
        return call(tx, "find", self._find(key))

    async def find_async(self, tx: Any, key: str) -> Reservation | None:
        """The same as `find` for asyncio."""
        return await call_async(tx, "find", self._find(key))

    def reservations(self, tx: Any, *, state: str | None = None, limit: int = 100) -> list[Reservation]:
        """The reservations in this state, or all of them; those that expire first come first."""
        return call(tx, "reservations", self._listing(state, limit))

    async def reservations_async(self, tx: Any, *, state: str | None = None, limit: int = 100) -> list[Reservation]:
        """The same as `reservations` for asyncio."""
        return await call_async(tx, "reservations", self._listing(state, limit))

    def schema(self, dialect: str = "postgresql") -> str:
        """The statements that make leasehold's tables, for programs that may not create tables themselves."""
        return _load(dialect).schema(self._rules.schema)

    # What was passed is checked here, before anything is sent; what is given back runs on a wire.

    def _restock(self, items: Items) -> Work[None]:
        checked = check_items(items, own=self._rules.own is not None, lowest=-MOST)
        return self._writes(lambda ledger: ledger.restock(checked))

    def _reserve(self, items: Items, key: str | None, hold: Duration | None) -> Work[Reservation]:
        checked = check_items(items, own=self._rules.own is not None)
        word = secrets.token_urlsafe(16) if key is None else _key(key)
        time = self._rules.hold if hold is None else ttl_seconds(hold, "hold")
        return self._writes(lambda ledger: ledger.reserve(word, checked, time))

    def _confirm(self, key: str, *, late: bool) -> Work[Reservation]:
        word = _key(key)
        return self._writes(lambda ledger: ledger.confirm(word, late=late))

    def _cancel(self, key: str) -> Work[Reservation]:
        word = _key(key)
        return self._writes(lambda ledger: ledger.cancel(word))

    def _sweep(self, limit: int) -> Work[int]:
        most = _limit(limit)
        return self._writes(lambda ledger: ledger.sweep(most))

    def _available(self, item: Item) -> Work[int]:
        (checked,) = check_items({item: 1}, own=self._rules.own is not None)
        return self._reads(lambda ledger: ledger.available(checked))

    def _find(self, key: str) -> Work[Reservation | None]:
        word = _key(key)
        return self._reads(lambda ledger: ledger.found(word, ledger.statements.find))

    def _listing(self, state: str | None, limit: int) -> Work[list[Reservation]]:
        if state is not None and state not in STATES:
            raise ConfigurationError(f"a reservation is {', '.join(STATES)}, not {state!r}")
        most = _limit(limit)
        return self._reads(lambda ledger: ledger.listing(state, most))

    def _writes(self, work: Callable[[Ledger], Awaitable[T]]) -> Work[T]:
        return lambda wire: writing(wire, _load(wire.dialect), self._rules, work)

    def _reads(self, work: Callable[[Ledger], Awaitable[T]]) -> Work[T]:
        return lambda wire: reading(wire, _load(wire.dialect), self._rules, work)


def reservations_schema(dialect: str = "postgresql", *, schema: str | None = None) -> str:
    """The statements that make the tables of `Stock`, in this schema of PostgreSQL or in the current one."""
    return _load(dialect).schema(schema)


def _load(dialect: str) -> Dialect:
    if dialect not in DIALECTS:
        raise ConfigurationError(f"no reservations in {dialect!r}; there are in {', '.join(sorted(DIALECTS))}")
    return cast("Dialect", import_module(DIALECTS[dialect]))


def _key(key: str) -> str:
    return check_text(key, "the key of a reservation")


def _limit(limit: object) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ConfigurationError(f"limit must be a whole number of at least 1, not {limit!r}")
    return limit
