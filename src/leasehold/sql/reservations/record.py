"""A reservation and what is kept of it: checked, written and judged here, without a database."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from leasehold.errors import (
    ConfigurationError,
    KeyReused,
    OutOfStock,
    ReservationExpired,
    ReservationRefused,
    RetryTransaction,
)
from leasehold.sql.idempotency.record import check_text

__all__ = [
    "Item",
    "Items",
    "Reservation",
    "Rules",
    "StockLevel",
    "StockTable",
    "check_items",
    "check_quantity",
    "expired",
    "given_back_in_order",
    "in_order",
    "judge_cancel",
    "judge_confirm",
    "judge_repeat",
    "known",
    "out_of_stock",
    "read_items",
    "retry",
    "write_items",
]

Item: TypeAlias = str | int
Items: TypeAlias = Mapping[str, int] | Mapping[int, int]

MOST = 2**31 - 1  # a column `integer` of the user's own can hold it
MOST_ITEMS = 100

HELD, CONFIRMED, CANCELLED, EXPIRED = "held", "confirmed", "cancelled", "expired"
STATES = (HELD, CONFIRMED, CANCELLED, EXPIRED)


@dataclass(frozen=True, slots=True)
class StockTable:
    """The user's own table of stock, by names."""

    table: str | tuple[str, str]
    item: str
    available: str


@dataclass(frozen=True, slots=True)
class Rules:
    """The options of `Stock`, in seconds."""

    name: str
    hold: float
    keep: float
    schema: str | None
    own: StockTable | None


@dataclass(frozen=True, slots=True)
class Reservation:
    """What was reserved under a key; `state` is held, confirmed, cancelled or expired.

    `expires_at` is a moment of the database's clock. `overdue`: it is held, and that moment was over when this was
    read; it can still be confirmed, until what it holds is given to another.
    """

    key: str
    items: Mapping[Item, int]
    state: str
    expires_at: datetime
    overdue: bool = False

    @classmethod
    def from_row(cls, key: str, items: str, state: str, expires: int, overdue: object) -> Reservation:
        """A row, with the moment in microseconds since 1970."""
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(expires))
        return cls(key, read_items(items), state, moment, state == HELD and bool(overdue))


@dataclass(frozen=True, slots=True)
class StockLevel:
    """How much there is of an item: `available` can be reserved now, `held` is reserved and not yet confirmed."""

    item: Item
    available: int
    held: int


def check_quantity(value: object, item: object, lowest: int = 1) -> int:
    """How many of an item."""
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= MOST:
        raise ConfigurationError(f"how many of {item!r}: a whole number from {lowest} to {MOST}, not {value!r}")
    return value


def check_items(items: object, *, own: bool, lowest: int = 1) -> dict[Item, int]:
    """What is wanted, in the one order in which all calls take it, so that no two wait for each other."""
    if not isinstance(items, Mapping) or not 1 <= len(items) <= MOST_ITEMS:
        raise ConfigurationError(f"items are written as {{item: quantity}}, 1 to {MOST_ITEMS} of them, not {items!r}")
    kinds = {type(item) for item in items}
    if kinds == {int} and not own:
        raise ConfigurationError("an item is named by a text; whole numbers are for a table of your own, with table=")
    if kinds != {int}:
        for item in items:
            check_text(item, "the name of an item")
    return {item: check_quantity(items[item], item, lowest) for item in sorted(items)}


def write_items(items: Mapping[Item, int]) -> str:
    """As they are kept: the same for the same request, in ASCII."""
    return json.dumps(list(items.items()), separators=(",", ":"))


def read_items(text: str) -> dict[Item, int]:
    """What was kept."""
    return dict(json.loads(text))


def judge_repeat(rules: Rules, key: str, items: str, found: Reservation) -> Reservation:
    """What a second request with a key is given: the first one's reservation, if it is the same request."""
    if write_items(found.items) != items:
        raise KeyReused(
            f"the key {key!r} of {rules.name!r} was used before to reserve something else; nothing was taken. A new "
            "reservation needs a new key",
            name=rules.name,
            key=key,
        )
    if found.state in (HELD, CONFIRMED):
        return found
    raise _over(rules, found, "reserved again: a new reservation needs a new key")


def known(rules: Rules, key: str, found: Reservation | None) -> Reservation:
    """The reservation of a key, which must be there."""
    if found is None:
        raise ReservationRefused(
            f"there is no reservation {key!r} of {rules.name!r}: it was never committed, or was removed since",
            name=rules.name,
            key=key,
        )
    return found


def judge_confirm(rules: Rules, found: Reservation, *, late: bool) -> bool:
    """Whether there is anything to do; refuses what cannot be confirmed any more."""
    if found.state == CONFIRMED:
        return False
    if found.state == CANCELLED or (not late and (found.overdue or found.state == EXPIRED)):
        raise _over(rules, found, "confirmed")
    return True


def judge_cancel(rules: Rules, found: Reservation) -> bool:
    """Whether there is anything to give back."""
    if found.state == CONFIRMED:
        raise _over(rules, found, "cancelled: what comes back after that is restocked")
    return found.state == HELD


def in_order(item: Item) -> tuple[bool, Item]:
    """What items are sorted by. One stock has texts or whole numbers, but that may have been changed."""
    return isinstance(item, str), item


def given_back_in_order(items: Mapping[Item, int], short: Item, done: Mapping[Item, object]) -> bool:
    """Whether a hold that is over can be given back in the middle of a reservation that lacks `short`.

    Its items must come later in the order, or be locked by this transaction already: else two could wait for each
    other. The holds that do not fit are left to `sweep`.
    """
    return short in items and all(item in done or in_order(item) >= in_order(short) for item in items)


def out_of_stock(rules: Rules, item: Item, wanted: int, available: int | None) -> OutOfStock:
    """More is wanted than there is."""
    there = "there is no such item" if available is None else f"{available} available"
    return OutOfStock(
        f"{wanted} of {item!r} wanted, {there} in {rules.name!r}; nothing was taken",
        name=rules.name,
        item=item,
        wanted=wanted,
        available=available or 0,
    )


def expired(rules: Rules, found: Reservation) -> ReservationExpired:
    """A late confirm that found the stock gone."""
    return ReservationExpired(
        f"the reservation {found.key!r} of {rules.name!r} expired at {_moment(found)}, and what it held was given to "
        "others: nothing was confirmed",
        name=rules.name,
        key=found.key,
        state=EXPIRED,
    )


def retry(what: str) -> RetryTransaction:
    """The database asks for another try."""
    return RetryTransaction(f"{what}: roll back, and run the whole transaction again")


def _over(rules: Rules, found: Reservation, what: str) -> ReservationRefused:
    late = found.overdue or found.state == EXPIRED
    kind = ReservationExpired if late else ReservationRefused
    state = f"expired at {_moment(found)}" if late else f"is {found.state}"
    return kind(
        f"the reservation {found.key!r} of {rules.name!r} {state}, and cannot be {what}",
        name=rules.name,
        key=found.key,
        state=EXPIRED if late else found.state,
    )


def _moment(found: Reservation) -> str:
    return found.expires_at.isoformat(timespec="seconds")
