"""What a reservation does in a transaction, step by step; the same for every database.

The row of the reservation is locked first, then rows of stock, always in the same order: no two of these calls can wait
for each other. Stock is only ever changed by one statement that looks and writes: `available + change >= 0`.

    available + what is held + what is confirmed = what was stocked

A hold whose time is over still holds. It is given back by a `sweep`, or by a reservation that lacks just that: in both
cases in the transaction that marks it as expired, so a confirm is before or after that and never beside it.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from leasehold.errors import ConfigurationError, LeaseholdError
from leasehold.sql.calls import require_transaction
from leasehold.sql.reservations.record import (
    CANCELLED,
    CONFIRMED,
    EXPIRED,
    HELD,
    Reservation,
    StockLevel,
    expired,
    given_back_in_order,
    in_order,
    judge_cancel,
    judge_confirm,
    judge_repeat,
    known,
    out_of_stock,
    read_items,
    retry,
    write_items,
)
from leasehold.sql.wires import Transaction

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import TypeVar

    from leasehold.sql.reservations.record import Item, Rules
    from leasehold.sql.wires import Answer, Wire

    T = TypeVar("T")

__all__ = ["Dialect", "Ledger", "Statements", "reading", "writing"]

LOOKED_AT = 1000  # holds that are over, by one reservation that lacks something


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements for a database; `stock` and `id` name a reservation, moments are microseconds since 1970."""

    find: str  # -> items, state, expires, overdue
    lock: str  # the same, and no other changes it until the end of the transaction
    settle: str  # before, after -> one row
    remove: str
    overdue: str  # limit -> id, items
    lock_free: str  # -> the state, and whether its time is over; no row if another transaction has it
    change: str  # item, change -> one row if it does not go below zero
    restock: str  # item, change -> one row
    level: str  # item -> available
    levels: str  # -> item, available
    held: str  # -> items, overdue
    listing: str  # state, limit -> id, items, state, expires, overdue
    old: str  # keep, limit -> id of those that are over for so long
    home: str = ""  # the schema of the tables, where there are several


class Dialect(Protocol):
    """A module that keeps reservations in one kind of database."""

    def schema(self, schema: str | None) -> str:
        """The statements that make the tables."""

    async def enter(self, wire: Wire, rules: Rules) -> Statements:
        """Find the tables, or make them where that does no harm."""

    async def begin(self, wire: Wire) -> bool:
        """Before the first statement of a transaction that is not open yet; whether this opened it."""

    async def claim(self, ledger: Ledger, values: Mapping[str, object]) -> Reservation | None:
        """Write the row of a reservation; None if there is one under this key."""

    async def prevent_commit(self, wire: Wire) -> None:
        """An error has come between two steps: what is half done must not be committed."""

    def explain(self, wire: Wire, error: Exception) -> None:
        """Raise an error that says what to do, for those that are to be expected."""

    def bound(self, word: str, value: object) -> object:
        """A value of ours as the database compares it."""

    def plain(self, value: Any) -> Any:
        """A value of the database as we have given it."""


async def writing(wire: Wire, dialect: Dialect, rules: Rules, work: Callable[[Ledger], Awaitable[T]]) -> T:
    """Do something that writes, as a part of the transaction."""
    state = require_transaction(wire, "this", "the reservation and its stock would not be one")
    opened = False
    try:
        opened = state is Transaction.OPENS and await dialect.begin(wire)
        ledger = Ledger(wire, dialect, rules, await dialect.enter(wire, rules))
        return await work(ledger)
    except LeaseholdError:
        if opened:
            await _prevent_commit(dialect, wire)
        raise
    except Exception as error:
        await _prevent_commit(dialect, wire)
        dialect.explain(wire, error)
        raise


async def reading(wire: Wire, dialect: Dialect, rules: Rules, work: Callable[[Ledger], Awaitable[T]]) -> T:
    """Do something that reads; a transaction is not needed."""
    try:
        return await work(Ledger(wire, dialect, rules, await dialect.enter(wire, rules)))
    except LeaseholdError:
        raise
    except Exception as error:
        dialect.explain(wire, error)
        raise


async def _prevent_commit(dialect: Dialect, wire: Wire) -> None:
    with suppress(Exception):
        await dialect.prevent_commit(wire)


class Ledger:
    """The stock and the reservations of one name, in one transaction."""

    def __init__(self, wire: Wire, dialect: Dialect, rules: Rules, statements: Statements) -> None:
        self.wire = wire
        self.rules = rules
        self.statements = statements
        self._dialect = dialect

    async def ask(self, statement: str, **values: object) -> Answer:
        """One statement about this stock."""
        named = {"stock": self.rules.name, **values}
        bound = {word: self._dialect.bound(word, value) for word, value in named.items()}
        if self.rules.own is not None and "item" in values:
            bound["item"] = values["item"]  # their column, in their form
        return await self.wire.query(statement, bound)

    async def reserve(self, key: str, items: Mapping[Item, int], hold: float) -> Reservation:
        """The row of the reservation first: who has that key already has its answer, or is waited for."""
        text = write_items(items)
        made = await self._dialect.claim(self, {"id": key, "items": text, "hold": hold})
        if made is None:
            found = await self.found(key, self.statements.lock)
            if found is None:  # the one before us is gone, or this transaction sees an older moment
                raise retry(f"the reservation {key!r} has just been removed")
            return judge_repeat(self.rules, key, text, found)
        short = await self._take(items)
        if short is not None:
            await self.ask(self.statements.remove, id=key)
            raise out_of_stock(self.rules, short, items[short], await self._in_stock(short))
        return made

    async def confirm(self, key: str, *, late: bool) -> Reservation:
        """Only the row of the reservation is written, unless what it held has to be taken again."""
        found = known(self.rules, key, await self.found(key, self.statements.lock))
        if judge_confirm(self.rules, found, late=late):
            return await self._confirm(found)
        return found

    async def _confirm(self, found: Reservation) -> Reservation:
        if found.state == EXPIRED and await self._take(found.items) is not None:
            raise expired(self.rules, found)
        await self._settle(found.key, found.state, CONFIRMED)
        return replace(found, state=CONFIRMED, overdue=False)

    async def cancel(self, key: str) -> Reservation:
        """Give back what is held."""
        found = known(self.rules, key, await self.found(key, self.statements.lock))
        if not judge_cancel(self.rules, found):
            return found
        await self._settle(key, HELD, CANCELLED)
        await self._give_back(found.items)
        return replace(found, state=CANCELLED, overdue=False)

    async def restock(self, items: Mapping[Item, int]) -> None:
        """Add to the stock, or take away what is not held; all of it, or nothing."""
        done: dict[Item, int] = {}
        for item, change in items.items():
            if change >= 0:
                count = (await self.ask(self.statements.restock, item=item, change=change)).count
                if count < 1 and change > 0:  # MySQL does not count a change by nothing
                    raise ConfigurationError(f"the stock table of {self.rules.name!r} has no row for {item!r}")
            elif not await self._change(item, change):
                await self._give_back({each: -made for each, made in done.items()})
                raise out_of_stock(self.rules, item, -change, await self._in_stock(item))
            done[item] = change

    async def sweep(self, limit: int) -> int:
        """Give back what is overdue, and remove old records."""
        returned: Counter[Item] = Counter()
        count = 0
        for key, items in await self._overdue(limit):
            if await self._expire(key):
                returned.update(items)
                count += 1
        await self._give_back(returned)
        for (key,) in (await self.ask(self.statements.old, keep=self.rules.keep, limit=limit)).rows:
            word = self._dialect.plain(key)
            if await self._is_free(word, is_held=False):
                await self.ask(self.statements.remove, id=word)
        return count

    async def available(self, item: Item) -> int:
        """What a reservation of this item alone would find: a hold that is over is as good as given back."""
        over = await self._overdue(LOOKED_AT)
        return (await self._in_stock(item) or 0) + sum(items.get(item, 0) for _, items in over)

    async def levels(self) -> list[StockLevel]:
        """Every item."""
        held = await self._held()
        rows = (await self.ask(self.statements.levels)).rows
        shelf = {self._dialect.plain(item): int(count) for item, count in rows}
        return [
            StockLevel(item, shelf[item] + held[True][item], held[False][item]) for item in sorted(shelf, key=in_order)
        ]

    async def listing(self, state: str | None, limit: int) -> list[Reservation]:
        """Reservations, as they are."""
        rows = (await self.ask(self.statements.listing, state=state, limit=limit)).rows
        return [Reservation.from_row(*map(self._dialect.plain, row)) for row in rows]

    async def found(self, key: str, statement: str) -> Reservation | None:
        """The reservation of a key, read with `find` or `lock`."""
        rows = (await self.ask(statement, id=key)).rows
        return Reservation.from_row(key, *map(self._dialect.plain, rows[0])) if rows else None

    async def _settle(self, key: str, before: str, after: str) -> None:
        if (await self.ask(self.statements.settle, id=key, before=before, after=after)).count != 1:
            raise retry(f"the reservation {key!r} has changed since it was read")

    async def _change(self, item: Item, change: int) -> bool:
        """Whether there is enough. A change by nothing locks the row all the same: others rely on the order."""
        count = (await self.ask(self.statements.change, item=item, change=change)).count
        return count > 0 or change == 0  # which MySQL does not count

    async def _give_back(self, items: Mapping[Item, int]) -> None:
        for item in sorted(
            items, key=in_order
        ):  # an item that is gone from the user's own table has nothing to be given back to
            if items[item]:
                await self._change(item, items[item])

    async def _take(self, wanted: Mapping[Item, int]) -> Item | None:
        """Take all of it, or nothing and say what is lacking."""
        changes = Counter({item: -count for item, count in wanted.items()})
        done: dict[Item, None] = {}
        while (item := min((each for each in changes if each not in done), key=in_order, default=None)) is not None:
            if await self._change(item, changes[item]) or item not in wanted:
                done[item] = None
                continue
            returned = await self._overdue_for(item, wanted[item], done)
            if not returned:
                await self._take_back(wanted, changes, done)
                return item
            await self._give_back({each: returned.pop(each) for each in list(returned) if each in done})
            changes.update(returned)
        return None

    async def _take_back(self, wanted: Mapping[Item, int], changes: Counter[Item], done: Mapping[Item, None]) -> None:
        """Undo what was taken; what was freed meanwhile has to be given back all the same."""
        await self._give_back(
            {item: wanted.get(item, 0) + (0 if item in done else change) for item, change in changes.items()}
        )

    async def _overdue_for(self, short: Item, wanted: int, done: Mapping[Item, None]) -> Counter[Item]:
        """What holds that are over give back, as far as this reservation needs it."""
        returned: Counter[Item] = Counter()
        for key, items in await self._overdue(LOOKED_AT):
            if returned[short] >= wanted:
                break
            if given_back_in_order(items, short, done) and await self._expire(key):
                returned.update(items)
        return +returned

    async def _overdue(self, limit: int) -> list[tuple[str, dict[Item, int]]]:
        rows = (await self.ask(self.statements.overdue, limit=limit)).rows
        return [(self._dialect.plain(key), read_items(self._dialect.plain(items))) for key, items in rows]

    async def _expire(self, key: str) -> bool:
        """Mark a hold that is over; the caller gives its items back. One that another transaction has is left to it."""
        if not await self._is_free(key, is_held=True):
            return False
        await self._settle(key, HELD, EXPIRED)
        return True

    async def _is_free(self, key: str, *, is_held: bool) -> bool:
        """Lock a reservation whose time is over, if it is still that, and no other transaction has it."""
        for state, is_over in (await self.ask(self.statements.lock_free, id=key)).rows:
            return bool(is_over) and (self._dialect.plain(state) == HELD) == is_held
        return False

    async def _in_stock(self, item: Item) -> int | None:
        rows = (await self.ask(self.statements.level, item=item)).rows
        return int(rows[0][0]) if rows else None

    async def _held(self) -> dict[bool, Counter[Item]]:
        """What is held, by whether the time is over."""
        held: dict[bool, Counter[Item]] = {True: Counter(), False: Counter()}
        for text, overdue in (await self.ask(self.statements.held)).rows:
            held[bool(overdue)].update(read_items(self._dialect.plain(text)))
        return held
