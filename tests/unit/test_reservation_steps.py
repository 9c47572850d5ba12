"""Reservations step by step, on a file of SQLite in memory whose clock is moved by moving the rows."""

from __future__ import annotations

import re
import sqlite3
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import (
    ConfigurationError,
    KeyReused,
    OutOfStock,
    ReservationExpired,
    ReservationRefused,
    RetryTransaction,
)
from leasehold._runtimes.threads import run
from leasehold.sql import Stock, StockLevel
from leasehold.sql.reservations import mysql, record, sqlite
from leasehold.sql.reservations.record import Reservation, Rules, StockTable, given_back_in_order, in_order
from leasehold.sql.reservations.steps import Ledger
from leasehold.sql.wires import Answer
from tests.unit.scripted_wire import ScriptedWire, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

STOCK = Stock("tickets", hold="10m", keep="1h")
RULES = Rules("tickets", 600.0, 3600.0, None, None)


@pytest.fixture
def file() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    yield connection
    connection.close()


def later(file: sqlite3.Connection, seconds: float, *keys: str) -> None:
    """As if so much time had passed for these reservations, or for all."""
    for key in keys or [row[0] for row in file.execute("SELECT id FROM leasehold_reservation")]:
        file.execute(
            "UPDATE leasehold_reservation SET made_at = made_at - ?, expires_at = expires_at - ? WHERE id = ?",
            (seconds, seconds, key),
        )


def shelf(file: sqlite3.Connection) -> dict[Any, int]:
    return dict(file.execute("SELECT item, available FROM leasehold_stock"))


def states(file: sqlite3.Connection) -> dict[str, str]:
    return {each.key: each.state for each in STOCK.reservations(file)}


def test_a_hold_lasts_as_long_as_was_said(file: sqlite3.Connection) -> None:
    STOCK.restock(file, {"a": 9})
    a_moment = timedelta(seconds=1)  # SQLite counts milliseconds
    before = datetime.now(UTC) - a_moment
    made = [STOCK.reserve(file, {"a": 1}), STOCK.reserve(file, {"a": 1}, hold="30s")]
    for reservation, hold in zip(made, (600, 30), strict=True):
        assert before <= reservation.expires_at - timedelta(seconds=hold) <= datetime.now(UTC) + a_moment
        assert not reservation.overdue
    kept = file.execute("SELECT round(expires_at - made_at, 3) FROM leasehold_reservation ORDER BY 1").fetchall()
    assert kept == [(30.0,), (600.0,)]
    assert made[0].key != made[1].key
    for wrong in (0, "1 year"):
        with pytest.raises(ConfigurationError, match="hold"):
            STOCK.reserve(file, {"a": 1}, hold=wrong)


def test_records_are_kept_for_as_long_as_was_said_after_they_are_over(file: sqlite3.Connection) -> None:
    STOCK.restock(file, {"a": 9})
    for key in ("confirmed", "cancelled", "expired", "held"):
        STOCK.reserve(file, {"a": 1}, key=key)
    STOCK.confirm(file, "confirmed")
    STOCK.cancel(file, "cancelled")
    later(file, 600 + 3500)
    assert STOCK.sweep(file) == 2
    STOCK.reserve(file, {"a": 1}, key="new")
    everything = {"confirmed": "confirmed", "cancelled": "cancelled", "expired": "expired", "held": "expired"}
    assert states(file) == {**everything, "new": "held"}
    later(file, 200, *everything)
    assert STOCK.sweep(file) == 0
    assert states(file) == {"new": "held"}


def test_a_sweep_takes_the_oldest_first_and_no_more_than_it_may(file: sqlite3.Connection) -> None:
    STOCK.restock(file, {"a": 9})
    for age, key in enumerate(("youngest", "middle", "oldest"), 1):
        STOCK.reserve(file, {"a": 1}, key=key)
        later(file, 600 + age, key)
    assert STOCK.sweep(file, limit=1) == 1
    assert states(file) == {"oldest": "expired", "middle": "held", "youngest": "held"}
    assert STOCK.sweep(file, limit=1) == 1
    assert shelf(file) == {"a": 8}
    for key in ("oldest", "middle"):
        later(file, 4000, key)
    assert Stock("tickets", keep="1h").sweep(file, limit=1) == 1
    assert len(states(file)) == 2, "one old record at a time"


def test_reservations_are_listed_by_the_moment_at_which_they_expire(file: sqlite3.Connection) -> None:
    STOCK.restock(file, {"a": 9})
    for key, hold in (("c", 30), ("a", 60), ("b", 60), ("d", 20)):
        STOCK.reserve(file, {"a": 1}, key=key, hold=hold)
    file.execute("UPDATE leasehold_reservation SET expires_at = 2e9 WHERE id IN ('a', 'b')")
    assert [each.key for each in STOCK.reservations(file)] == ["d", "c", "a", "b"]
    assert [each.key for each in STOCK.reservations(file, limit=2)] == ["d", "c"]
    STOCK.cancel(file, "d")
    assert [each.key for each in STOCK.reservations(file, state="held", limit=2)] == ["c", "a"]


def test_overdue_is_said_of_holds_alone(file: sqlite3.Connection) -> None:
    STOCK.restock(file, {"a": 9})
    for key in ("held", "confirmed", "cancelled"):
        STOCK.reserve(file, {"a": 1}, key=key)
    STOCK.cancel(file, "cancelled")
    later(file, 700)
    found = {each.key: each.overdue for each in STOCK.reservations(file)}
    assert found == {"held": True, "confirmed": True, "cancelled": False}
    confirmed = STOCK.confirm(file, "confirmed")
    assert (confirmed.state, confirmed.overdue) == ("confirmed", False)
    assert STOCK.find(file, "confirmed") == confirmed
    given_back = STOCK.cancel(file, "held")
    assert (given_back.state, given_back.overdue) == ("cancelled", False)
    settled = dict(file.execute("SELECT id, settled_at IS NOT NULL FROM leasehold_reservation").fetchall())
    assert settled == {"held": 1, "confirmed": 1, "cancelled": 1}


def test_a_reservation_takes_no_more_holds_than_it_needs_the_oldest_first(file: sqlite3.Connection) -> None:
    STOCK.restock(file, {"a": 3})
    for age, key in enumerate(("third", "second", "first"), 1):
        STOCK.reserve(file, {"a": 1}, key=key)
        later(file, 600 + age, key)
    assert STOCK.available(file, "a") == 3
    assert STOCK.reserve(file, {"a": 2}, key="next").state == "held"
    assert states(file) == {"first": "expired", "second": "expired", "third": "held", "next": "held"}
    assert shelf(file) == {"a": 0}
    assert STOCK.available(file, "a") == 1, "the third hold is as good as given back"
    assert STOCK.levels(file) == [StockLevel("a", 1, 2)]


def test_what_is_left_of_a_shelf_is_told_to_one_who_wants_more(file: sqlite3.Connection) -> None:
    STOCK.restock(file, {"a": 9, "b": 7})
    STOCK.reserve(file, {"a": 4}, key="held")
    STOCK.reserve(file, {"b": 1}, key="over")
    later(file, 700, "over")
    with pytest.raises(OutOfStock) as lacking:
        STOCK.reserve(file, {"a": 2, "b": 8}, key="k")
    assert (lacking.value.item, lacking.value.wanted, lacking.value.available) == ("b", 8, 7)
    assert "8 of 'b' wanted, 7 available in 'tickets'" in str(lacking.value)
    with pytest.raises(OutOfStock) as lacking:
        STOCK.reserve(file, {"a": 6}, key="k")
    assert (lacking.value.item, lacking.value.wanted, lacking.value.available) == ("a", 6, 5)
    with pytest.raises(OutOfStock) as lacking:
        STOCK.restock(file, {"a": -6})
    assert (lacking.value.item, lacking.value.wanted, lacking.value.available) == ("a", 6, 5)
    assert STOCK.find(file, "k") is None
    assert STOCK.levels(file) == [StockLevel("a", 5, 4), StockLevel("b", 7, 0)]


def test_what_a_freed_hold_has_of_other_items_comes_back_too(file: sqlite3.Connection) -> None:
    STOCK.restock(file, {"a": 1, "b": 2, "c": 5})
    STOCK.reserve(file, {"a": 1, "b": 2, "c": 3}, key="late")
    later(file, 700, "late")
    assert [STOCK.available(file, item) for item in "abcd"] == [1, 2, 5, 0]
    STOCK.reserve(file, {"a": 1, "b": 1}, key="next")
    assert states(file)["late"] == "expired"
    assert shelf(file) == {"a": 0, "b": 1, "c": 5}


def test_a_hold_with_items_that_come_before_the_lacking_one_is_left_to_a_sweep(file: sqlite3.Connection) -> None:
    """To give it back in the middle of a reservation, rows would be locked in an order that could deadlock."""
    STOCK.restock(file, {"a": 5, "b": 1})
    STOCK.reserve(file, {"a": 1, "b": 1}, key="late")
    later(file, 700, "late")
    with pytest.raises(OutOfStock) as short:
        STOCK.reserve(file, {"b": 1})
    assert (short.value.item, short.value.available) == ("b", 0)
    assert STOCK.reserve(file, {"a": 1, "b": 1}).state == "held", "here a is locked already"
    assert shelf(file) == {"a": 4, "b": 0}


def test_an_expired_reservation_that_is_confirmed_takes_its_items_again_or_nothing(file: sqlite3.Connection) -> None:
    STOCK.restock(file, {"a": 2, "b": 2})
    STOCK.reserve(file, {"a": 1, "b": 2}, key="k")
    later(file, 700)
    STOCK.sweep(file)
    STOCK.restock(file, {"b": -1})
    with pytest.raises(ReservationExpired, match=r"expired at .*given to others: nothing was confirmed"):
        STOCK.confirm(file, "k")
    assert (shelf(file), states(file)) == ({"a": 2, "b": 1}, {"k": "expired"})
    STOCK.restock(file, {"b": 1})
    assert STOCK.confirm(file, "k").state == "confirmed"
    assert (shelf(file), states(file)) == ({"a": 1, "b": 0}, {"k": "confirmed"})


def test_cancelling_what_has_expired_changes_nothing(file: sqlite3.Connection) -> None:
    STOCK.restock(file, {"a": 2})
    STOCK.reserve(file, {"a": 1}, key="k")
    later(file, 700)
    STOCK.sweep(file)
    assert STOCK.cancel(file, "k").state == "expired"
    assert (shelf(file), states(file)) == ({"a": 2}, {"k": "expired"})


def test_a_row_that_another_step_has_changed_asks_for_another_run(file: sqlite3.Connection) -> None:
    STOCK.restock(file, {"a": 2})
    STOCK.reserve(file, {"a": 1}, key="k")
    file.execute(
        "CREATE TRIGGER t BEFORE UPDATE ON leasehold_reservation WHEN new.state <> 'held' "
        "BEGIN SELECT RAISE(IGNORE); END"
    )
    for verb in (STOCK.confirm, STOCK.cancel):
        with pytest.raises(RetryTransaction, match="'k' has changed since it was read: roll back"):
            verb(file, "k")
    assert shelf(file) == {"a": 1}


def test_a_failure_between_two_steps_leaves_nothing_to_commit(file: sqlite3.Connection) -> None:
    STOCK.restock(file, {"a": 2, "b": 2})
    file.commit()
    file.execute(
        "CREATE TRIGGER t BEFORE UPDATE ON leasehold_stock WHEN new.item = 'b' BEGIN SELECT RAISE(ABORT, 'broken'); END"
    )
    file.commit()
    with pytest.raises(sqlite3.IntegrityError, match="broken"):
        STOCK.reserve(file, {"a": 1, "b": 1}, key="k")
    file.commit()  # by a program that goes on all the same
    assert (shelf(file), states(file)) == ({"a": 2, "b": 2}, {})


def test_a_refusal_closes_the_transaction_that_the_call_has_opened_and_no_other(file: sqlite3.Connection) -> None:
    STOCK.restock(file, {"a": 1})
    with pytest.raises(OutOfStock):
        STOCK.reserve(file, {"a": 2})
    opened = [file.in_transaction]  # it was open before
    assert states(file) == {}
    file.commit()
    with pytest.raises(OutOfStock):
        STOCK.reserve(file, {"a": 2})
    assert [*opened, file.in_transaction] == [True, False]
    assert shelf(file) == {"a": 1}


def test_reading_opens_no_transaction_and_makes_the_tables_once(file: sqlite3.Connection) -> None:
    asked: list[str] = []
    assert STOCK.available(file, "a") == 0
    file.set_trace_callback(asked.append)
    assert (STOCK.levels(file), STOCK.find(file, "k"), STOCK.reservations(file)) == ([], None, [])
    assert not [statement for statement in asked if "CREATE" in statement]
    assert not file.in_transaction


def test_what_is_not_there_is_not_taken_away(file: sqlite3.Connection) -> None:
    STOCK.restock(file, {"a": 2})
    with pytest.raises(OutOfStock, match=r"^5 of 'a' wanted, 2 available"):
        STOCK.restock(file, {"a": -5})
    with pytest.raises(OutOfStock, match=r"^1 of 'b' wanted, there is no such item"):
        STOCK.restock(file, {"b": -1})
    STOCK.restock(file, {"a": -2})
    assert shelf(file) == {"a": 0}


@pytest.mark.parametrize(
    ("items", "lacking"),
    [
        ({"a": 4, "b": -3}, ("b", 3, 2)),
        ({"a": -4, "b": -3}, ("b", 3, 2)),
        ({"a": -5, "b": 9, "c": -1}, ("c", 1, 0)),
        ({"b": -2, "a": -6}, ("a", 6, 5)),
        ({"a": 0, "b": 1, "d": -1}, ("d", 1, 0)),
    ],
)
def test_a_restock_that_lacks_something_changes_nothing_even_if_the_refusal_is_caught_and_committed(
    file: sqlite3.Connection, items: dict[str, int], lacking: tuple[str, int, int]
) -> None:
    STOCK.restock(file, {"a": 5, "b": 2, "c": 0})
    with pytest.raises(OutOfStock, match="nothing was taken") as short:
        STOCK.restock(file, items)
    file.commit()
    assert (short.value.item, short.value.wanted, short.value.available) == lacking
    assert shelf(file) == {"a": 5, "b": 2, "c": 0}


def test_levels_are_listed_by_the_names_of_the_items(file: sqlite3.Connection) -> None:
    file.execute("CREATE TABLE product (id TEXT, available INTEGER NOT NULL)")
    file.execute("INSERT INTO product VALUES ('c', 1), ('a', 2), ('b', 3)")
    assert [level.item for level in Stock("own", table="product").levels(file)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("row", "is_held", "free"),
    [
        (("held", 1), True, True),
        (("held", 0), True, False),
        (("confirmed", 1), True, False),
        (("expired", 1), False, True),
        (("held", 1), False, False),
        (("expired", 0), False, False),
        (None, True, False),
    ],
)
def test_only_what_is_still_over_and_nobody_else_has_is_given_back(row: Any, is_held: bool, free: bool) -> None:
    """Between the list and the lock another may have settled it, or has it locked."""
    wire = ScriptedWire(*([rows(row)] if row else []))
    ledger = Ledger(wire, sqlite, RULES, sqlite._statements(None))
    assert run(ledger._is_free("k", is_held=is_held)) is free


def test_what_is_added_to_a_shelf_of_the_users_own_needs_its_row(file: sqlite3.Connection) -> None:
    own = Stock("own", table="product")
    file.execute("CREATE TABLE product (id INTEGER PRIMARY KEY, available INTEGER NOT NULL)")
    file.execute("INSERT INTO product VALUES (1, 1), (10, 5), (9, 5)")
    own.restock(file, {1: 0, 10: 1})
    with pytest.raises(ConfigurationError, match="no row for 2"):
        own.restock(file, {2: 1})
    own.reserve(file, {10: 1, 9: 2}, key="k")
    assert [level.item for level in own.levels(file)] == [1, 9, 10]
    assert own.levels(file)[1:] == [StockLevel(9, 3, 2), StockLevel(10, 5, 1)]
    file.execute("DELETE FROM product WHERE id = 9")
    own.cancel(file, "k")  # an item that is gone has nothing to be given back to
    assert own.available(file, 10) == 6


def test_a_shelf_of_the_users_own_may_be_in_another_schema_with_names_of_its_own(file: sqlite3.Connection) -> None:
    file.execute("ATTACH ':memory:' AS shop")
    for schema, left in (("main", 70), ("shop", 5)):
        file.execute(f'CREATE TABLE {schema}."the things" ("sku %" TEXT PRIMARY KEY, "left" INTEGER NOT NULL)')
        file.execute(f"INSERT INTO {schema}.\"the things\" VALUES ('a', {left}), ('b', {left + 1})")
    own = Stock("own", table=("shop", "the things"), item="sku %", available="left")
    made = own.reserve(file, {"a": 2, "b": 6}, key="k", hold="1h")
    assert own.levels(file) == [StockLevel("a", 3, 2), StockLevel("b", 0, 6)]
    assert [own.available(file, item) for item in "abc"] == [3, 0, 0]
    with pytest.raises(OutOfStock, match="1 of 'b' wanted, 0 available in 'own'"):
        own.reserve(file, {"a": 1, "b": 1})
    own.cancel(file, made.key)
    own.restock(file, {"a": 4, "b": -6})
    with pytest.raises(ConfigurationError, match="the stock table of 'own' has no row for 'c'"):
        own.restock(file, {"c": 1})
    shelves = [
        dict(file.execute(f'SELECT "sku %", "left" FROM {schema}."the things"').fetchall())
        for schema in ("shop", "main")
    ]
    assert shelves == [{"a": 9, "b": 0}, {"a": 70, "b": 71}]


# --- without a database


MOMENT = datetime(2026, 3, 1, 12, 30, 15, tzinfo=UTC)


def reservation(state: str, *, overdue: bool = False) -> Reservation:
    return Reservation("k", {"a": 1}, state, MOMENT, overdue)


EXPIRED_AT = "expired at 2026-03-01T12:30:15"
JUDGED = [
    # state, overdue -> confirm, confirm with late=False, cancel, reserve again
    ("held", False, True, True, True, None),
    ("held", True, True, EXPIRED_AT, True, None),
    ("confirmed", False, False, False, "is confirmed, and cannot be cancelled", None),
    ("cancelled", False, "is cancelled, and cannot be confirmed", "is cancelled", False, "is cancelled"),
    ("expired", False, True, EXPIRED_AT, False, EXPIRED_AT),
]


@pytest.mark.parametrize(("state", "overdue", "confirm", "in_time", "cancel", "again"), JUDGED)
def test_what_may_be_done_to_a_reservation(
    state: str, overdue: bool, confirm: Any, in_time: Any, cancel: Any, again: Any
) -> None:
    found = reservation(state, overdue=overdue)
    verbs: list[tuple[Any, Any]] = [
        (lambda: record.judge_confirm(RULES, found, late=True), confirm),
        (lambda: record.judge_confirm(RULES, found, late=False), in_time),
        (lambda: record.judge_cancel(RULES, found), cancel),
        (lambda: record.judge_repeat(RULES, "k", '[["a",1]]', found), again),
    ]
    for verb, answer in verbs:
        if not isinstance(answer, str):
            assert verb() is (found if answer is None else answer)
            continue
        with pytest.raises(ReservationRefused, match=f"'k' of 'tickets' {answer}") as refused:
            verb()
        late = answer.startswith("expired")
        assert isinstance(refused.value, ReservationExpired) is late
        assert (refused.value.name, refused.value.key) == ("tickets", "k")
        assert refused.value.state == ("expired" if late else state)


def test_a_key_that_was_used_for_something_else_is_refused_whatever_became_of_it() -> None:
    for state in record.STATES:
        with pytest.raises(KeyReused, match="used before to reserve something else") as caught:
            record.judge_repeat(RULES, "k", '[["a",2]]', reservation(state))
        assert (caught.value.name, caught.value.key) == ("tickets", "k")


def test_a_row_is_read_with_its_moment_and_is_overdue_only_while_it_is_held() -> None:
    micros = 1_772_368_215_000_123
    for state, over, overdue in (("held", 1, True), ("held", 0, False), ("confirmed", 1, False), ("expired", 1, False)):
        read = Reservation.from_row("k", '[["a",2],["b",1]]', state, micros, over)
        assert read == Reservation("k", {"a": 2, "b": 1}, state, MOMENT + timedelta(microseconds=123), overdue)


def test_items_are_kept_in_one_order_and_in_ascii() -> None:
    checked = record.check_items({"ü": 2, "a": 1}, own=False)
    assert list(checked) == ["a", "ü"]
    assert record.write_items(checked) == '[["a",1],["\\u00fc",2]]'
    assert record.read_items(record.write_items(checked)) == checked
    assert record.check_items({10: 1, 9: 1}, own=True) == {9: 1, 10: 1}
    assert record.check_items({"a": -record.MOST}, own=False, lowest=-record.MOST) == {"a": -record.MOST}
    assert record.check_items({str(n): record.MOST for n in range(100)}, own=False)["7"] == 2**31 - 1
    mistakes: list[tuple[Any, bool, str]] = [
        ({}, False, "1 to 100"),
        ({str(n): 1 for n in range(101)}, False, "1 to 100"),
        (["a"], False, "1 to 100"),
        ({1: 1}, False, "with table="),
        ({1: 1, "a": 1}, True, "must be text"),
        ({True: 1}, True, "must be text"),
        ({"a": 0}, False, "'a': a whole number from 1"),
        ({"a": 2**31}, False, "to 2147483647"),
        ({"a": True}, False, "a whole number"),
        ({"x" * 513: 1}, False, "the name of an item"),
    ]
    for items, own, words in mistakes:
        with pytest.raises(ConfigurationError, match=words):
            record.check_items(items, own=own)


@pytest.mark.parametrize(
    ("items", "short", "done", "fits"),
    [
        ({"b": 1}, "b", {}, True),
        ({"b": 1, "c": 1}, "b", {}, True),
        ({"a": 1, "b": 1}, "b", {}, False),
        ({"a": 1, "b": 1}, "b", {"a": None}, True),
        ({"c": 1}, "b", {}, False),
        ({9: 1, 10: 1}, 9, {}, True),
        ({9: 1, 10: 1}, 10, {}, False),
    ],
)
def test_which_holds_fit_into_the_order_of_locks(items: Any, short: Any, done: Any, fits: bool) -> None:
    assert given_back_in_order(items, short, done) is fits


def test_numbers_come_before_texts_and_both_by_their_size() -> None:
    key: Any = in_order
    assert sorted(["b", 10, "a", 9], key=key) == [9, 10, "a", "b"]


def test_what_is_lacking_is_told_with_its_numbers() -> None:
    short = record.out_of_stock(RULES, "a", 3, 2)
    assert str(short) == "3 of 'a' wanted, 2 available in 'tickets'; nothing was taken"
    assert (short.name, short.item, short.wanted, short.available) == ("tickets", "a", 3, 2)
    gone = record.out_of_stock(RULES, "a", 3, None)
    assert "there is no such item" in str(gone)
    assert gone.available == 0


def test_a_hold_lasts_a_quarter_of_an_hour_and_a_record_a_week_unless_told_otherwise() -> None:
    rules = Stock("t")._rules
    assert (rules.hold, rules.keep, rules.schema, rules.own) == (900.0, 7 * 86_400.0, None, None)
    assert Stock("t", table=("a", "b"))._rules.own == record.StockTable(("a", "b"), "id", "available")


@pytest.mark.parametrize(
    ("words", "which"),
    [({"hold": 0}, "hold"), ({"keep": -1}, "keep"), ({"schema": ""}, "schema"), ({"name": ""}, "the name of a stock")],
)
def test_bad_options_are_refused_by_their_names(words: dict[str, Any], which: str) -> None:
    with pytest.raises(ConfigurationError, match=which):
        Stock(**{"name": "t", **words})


def test_what_is_asked_for_is_checked_before_anything_is_sent() -> None:
    nothing: Any = None
    mistakes: list[tuple[Any, str]] = [
        (lambda: STOCK.find(nothing, ""), "the key of a reservation"),
        (lambda: STOCK.cancel(nothing, ""), "the key of a reservation"),
        (lambda: STOCK.reserve(nothing, {"a": 1}, key=""), "the key of a reservation"),
        (lambda: STOCK.available(nothing, ""), "the name of an item"),
        (lambda: STOCK.reservations(nothing, limit=0), "limit must be a whole number of at least 1"),
        (lambda: STOCK.sweep(nothing, limit=True), "limit must be a whole number"),
        (lambda: STOCK.reservations(nothing, state="sold"), "held, confirmed, cancelled, expired, not 'sold'"),
        (lambda: STOCK.schema("oracle"), "no reservations in 'oracle'; there are in mysql, postgresql, sqlite"),
    ]
    for mistake, words in mistakes:
        with pytest.raises(ConfigurationError, match=words):
            mistake()


def test_a_schema_is_refused_where_there_is_none(file: sqlite3.Connection) -> None:
    placed = Stock("t", schema="x")
    for dialect in ("sqlite", "mysql"):
        with pytest.raises(ConfigurationError, match="schema= is for PostgreSQL"):
            placed.schema(dialect)
    with pytest.raises(ConfigurationError, match="schema= is for PostgreSQL"):
        placed.restock(file, {"a": 1})
    assert '"x".leasehold_reservation' in placed.schema()


def test_a_basket_is_taken_in_one_order_however_it_was_written(file: sqlite3.Connection) -> None:
    """Two baskets that are taken in different orders can wait for each other in a database that locks rows."""
    STOCK.restock(file, dict.fromkeys("abcde", 99))
    statements: list[str] = []
    file.set_trace_callback(statements.append)
    for basket in permutations("abcde", 4):
        statements.clear()
        STOCK.reserve(file, dict.fromkeys(basket, 1))
        changes = [each for each in statements if re.match(r"\s*UPDATE\s+leasehold_stock", each)]
        assert re.findall(r"'([a-e])'", " ".join(changes)) == sorted(basket)


# --- what a database answers


def a_ledger(*answers: Any, dialect: Any = sqlite, own: StockTable | None = None) -> tuple[ScriptedWire, Ledger]:
    wire = ScriptedWire(*answers, dialect="sqlite")
    return wire, Ledger(wire, dialect, Rules("tickets", 600.0, 3600.0, None, own), dialect._statements(own))


def test_a_sweep_counts_and_removes_only_what_no_other_transaction_has() -> None:
    ours, theirs = '[["a",2],["b",1]]', '[["a",40]]'
    wire, ledger = a_ledger(
        rows(("ours", ours), ("theirs", theirs)),
        rows(("held", 1)),
        Answer([], 1),
        rows(),
        Answer([], 1),
        Answer([], 1),
        rows(("old",), ("looked at",), ("held again",)),
        rows(("cancelled", 1)),
        Answer([], 1),
        rows(),
        rows(("held", 1)),
    )
    assert run(ledger.sweep(9)) == 1
    changes = [(values["item"], values["change"]) for _, values in wire.asked if "change" in values]
    assert changes == [("a", 2), ("b", 1)]
    removed = [values["id"] for statement, values in wire.asked if statement.startswith("DELETE")]
    assert removed == ["old"]


@pytest.mark.parametrize(("change", "is_enough"), [(0, True), (1, False), (-1, False)])
def test_a_change_by_nothing_that_mysql_does_not_count_is_no_lack(change: int, is_enough: bool) -> None:
    _, ledger = a_ledger()
    assert run(ledger._change("a", change)) is is_enough
    _, ledger = a_ledger(own=StockTable("shelf", "sku", "left"))
    if change == 0:
        run(ledger.restock({"a": 0}))
        return
    with pytest.raises((ConfigurationError, OutOfStock)):
        run(ledger.restock({"a": change}))


@pytest.mark.parametrize(("own", "item"), [(None, "c3a9"), (StockTable("shelf", "sku", "left"), "é")])
def test_a_name_is_sent_to_mysql_as_its_column_has_it(own: StockTable | None, item: str) -> None:
    wire, ledger = a_ledger(dialect=mysql, own=own)
    run(ledger.ask("SELECT 1", item="é", id="k", change=3))
    assert wire.asked == [("SELECT 1", {"stock": b"tickets".hex(), "item": item, "id": "6b", "change": 3})]
