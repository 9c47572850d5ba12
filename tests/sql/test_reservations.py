"""Reservations mean the same over every kind of connection and all three databases."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import psycopg
import pymysql
import pytest
import sqlalchemy

from leasehold import (
    ConfigurationError,
    KeyReused,
    OutOfStock,
    ReservationExpired,
    ReservationRefused,
    RetryTransaction,
)
from leasehold.sql import Stock, StockLevel, reservations_schema
from tests.forms import sized
from tests.servers.mariadb import fresh_mariadb
from tests.sql.desks import EVERY_DESK, fresh_schema, make_desk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.sql.desks import Desk
    from verification.lab.mariadb import MariadbServer
    from verification.lab.postgres import PostgresServer

EVERY = EVERY_DESK
PLAIN = {"postgresql": "psycopg", "mysql": "pymysql", "sqlite": "sqlite3"}
HOSTILE = [
    "a'b",
    'a"b',
    "a;DROP TABLE x",
    "a\\",
    "%s %(id)s :id ? $1",
    "a\nb",
    "é\u2028😀",
    "--",
    "{}",
    " a ",
    "A",
    "a",
]


class Shop:
    """One connection of the kind that is tested, and a plain one to the same database."""

    def __init__(self, database: str, kind: str, url: str) -> None:
        self.database = database
        self.desk = make_desk(kind, url)
        self.url = url

    def other(self) -> Desk:
        return make_desk(PLAIN[self.database], self.url)

    def close(self) -> None:
        self.desk.close()


@pytest.fixture(scope="module")
def on_postgresql(postgres: PostgresServer) -> str:
    """One database for all tests of this file: to make one takes longer than any of them."""
    return fresh_schema(postgres)


@pytest.fixture(scope="module")
def on_mysql(mariadb: MariadbServer) -> str:
    return fresh_mariadb(mariadb)


@pytest.fixture
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    database, _, kind = request.param.partition(" ")
    url = f"sqlite:///{tmp_path}/a.db" if database == "sqlite" else request.getfixturevalue(f"on_{database}")
    shop = Shop(database, kind, url)
    plain = shop.other()
    for table in ("leasehold_stock", "leasehold_reservation", "product"):
        with plain.begin() as tx:
            plain.run(tx, f"DROP TABLE IF EXISTS {table}")
    if database == "mysql":
        make_tables(plain)
    plain.close()
    yield shop
    shop.close()


def make_tables(desk: Desk) -> None:
    for statement in reservations_schema("mysql").split(";\n"):
        with desk.begin() as tx:
            if statement.strip():
                desk.run(tx, statement)


everywhere = pytest.mark.parametrize("shop", EVERY, indirect=True)
each_database = pytest.mark.parametrize("shop", [f"{name} {kind}" for name, kind in PLAIN.items()], indirect=True)
STOCK = Stock("tickets", hold="10m")


def stocked(shop: Shop, **items: int) -> Desk:
    with shop.desk.begin() as tx:
        STOCK.restock(tx, items)
    return shop.desk


def shelf(desk: Desk) -> dict[Any, int]:
    with desk.begin() as tx:
        return {level.item: level.available for level in STOCK.levels(tx)}


@everywhere
def test_what_is_reserved_is_taken_and_what_is_cancelled_comes_back(shop: Shop) -> None:
    desk = stocked(shop, floor=10, balcony=4)
    with desk.begin() as tx:
        made = STOCK.reserve(tx, {"floor": 2, "balcony": 1}, key="order 1")
    assert (made.key, made.state, dict(made.items)) == ("order 1", "held", {"balcony": 1, "floor": 2})
    with desk.begin() as tx:
        assert STOCK.levels(tx) == [StockLevel("balcony", 3, 1), StockLevel("floor", 8, 2)]
        assert STOCK.find(tx, "order 1") == made
        assert STOCK.available(tx, "floor") == 8
        assert STOCK.available(tx, "no such item") == 0
    with desk.begin() as tx:
        assert STOCK.cancel(tx, "order 1").state == "cancelled"
        assert STOCK.cancel(tx, "order 1").state == "cancelled"  # again: nothing comes back twice
    assert shelf(desk) == {"balcony": 4, "floor": 10}
    with desk.begin() as tx, pytest.raises(ReservationRefused, match="is cancelled, and cannot be confirmed"):
        STOCK.confirm(tx, "order 1")


@everywhere
def test_what_is_confirmed_is_gone_for_good(shop: Shop) -> None:
    desk = stocked(shop, floor=1)
    with desk.begin() as tx:
        key = STOCK.reserve(tx, {"floor": 1}).key
    with desk.begin() as tx:
        assert STOCK.confirm(tx, key).state == "confirmed"
    with desk.begin() as tx:
        assert STOCK.confirm(tx, key).state == "confirmed"
        with pytest.raises(ReservationRefused, match="restocked") as refused:
            STOCK.cancel(tx, key)
    assert (refused.value.key, refused.value.state) == (key, "confirmed")
    assert shelf(desk) == {"floor": 0}
    with desk.begin() as tx:
        assert [each.key for each in STOCK.reservations(tx, state="confirmed")] == [key]
        assert STOCK.reservations(tx, state="held") == []


@everywhere
def test_the_same_key_gives_the_same_reservation_and_another_request_is_refused(shop: Shop) -> None:
    desk = stocked(shop, floor=5, balcony=5)
    with desk.begin() as tx:
        first = STOCK.reserve(tx, {"floor": 1, "balcony": 2}, key="k")
    with desk.begin() as tx:
        assert STOCK.reserve(tx, {"balcony": 2, "floor": 1}, key="k") == first
    for other in ({"floor": 2, "balcony": 2}, {"floor": 1}, {"floor": 1, "balcony": 2, "box": 1}):
        with desk.begin() as tx, pytest.raises(KeyReused):
            STOCK.reserve(tx, other, key="k")
    assert shelf(desk) == {"balcony": 3, "floor": 4}
    with desk.begin() as tx:
        STOCK.cancel(tx, "k")
    with desk.begin() as tx, pytest.raises(ReservationRefused, match="new key"):
        STOCK.reserve(tx, {"floor": 1, "balcony": 2}, key="k")
    assert shelf(desk) == {"balcony": 5, "floor": 5}


@everywhere
def test_a_reservation_takes_all_or_nothing_even_if_the_refusal_is_caught_and_committed(shop: Shop) -> None:
    desk = stocked(shop, a=5, b=5, c=1)
    with desk.begin() as tx, pytest.raises(OutOfStock, match="2 of 'c' wanted, 1 available") as short:
        STOCK.reserve(tx, {"c": 2, "a": 1, "b": 3}, key="k")
    assert (short.value.item, short.value.wanted, short.value.available) == ("c", 2, 1)
    assert shelf(desk) == {"a": 5, "b": 5, "c": 1}
    with desk.begin() as tx:
        assert STOCK.find(tx, "k") is None
        assert STOCK.reserve(tx, {"c": 1, "a": 1}, key="k").state == "held"  # the key is free
    assert shelf(desk) == {"a": 4, "b": 5, "c": 0}


@everywhere
def test_what_is_rolled_back_has_not_been_reserved(shop: Shop) -> None:
    desk = stocked(shop, floor=1)

    class Failed(Exception):
        pass

    with pytest.raises(Failed), desk.begin() as tx:
        STOCK.reserve(tx, {"floor": 1}, key="k")
        raise Failed
    assert shelf(desk) == {"floor": 1}
    with desk.begin() as tx:
        assert STOCK.find(tx, "k") is None


@each_database
def test_holds_that_are_over_are_given_to_who_lacks_them_without_a_sweep(shop: Shop) -> None:
    desk = stocked(shop, a=2, b=2)
    with desk.begin() as tx:
        STOCK.reserve(tx, {"a": 2, "b": 1}, key="late", hold=0.1)
        STOCK.reserve(tx, {"b": 1}, key="safe")
    wait_until_overdue(desk, "late")
    with desk.begin() as tx:
        assert STOCK.available(tx, "a") == 2
        assert STOCK.levels(tx) == [StockLevel("a", 2, 0), StockLevel("b", 1, 1)]
        assert STOCK.reserve(tx, {"a": 1}, key="next").state == "held"
    with desk.begin() as tx:
        found = STOCK.find(tx, "late")
        assert found is not None
        assert found.state == "expired"
    assert shelf(desk) == {"a": 1, "b": 1}
    with desk.begin() as tx, pytest.raises(ReservationExpired):
        STOCK.reserve(tx, {"a": 2, "b": 1}, key="late")


def wait_until_overdue(desk: Desk, key: str) -> None:
    while True:
        with desk.begin() as tx:
            found = STOCK.find(tx, key)
        assert found is not None
        if found.overdue:
            return
        time.sleep(0.02)


@each_database
@pytest.mark.parametrize(("wanted", "lacking"), [({"a": 1, "b": 2, "c": 1}, "c"), ({"a": 2, "b": 1}, "a")])
def test_a_basket_that_stays_short_gives_back_what_it_has_freed(
    shop: Shop, wanted: dict[str, int], lacking: str
) -> None:
    desk = stocked(shop, a=1, b=2, c=0)
    with desk.begin() as tx:
        STOCK.reserve(tx, {"a": 1, "b": 1}, key="late", hold=0.1)
    wait_until_overdue(desk, "late")
    with desk.begin() as tx:
        STOCK.restock(tx, {"a": 0})  # the transaction is open, so nobody ends it because of a refusal
        with pytest.raises(OutOfStock) as short:
            STOCK.reserve(tx, wanted, key="k")
    assert short.value.item == lacking
    assert shelf(desk) == {"a": 1, "b": 2, "c": 0}
    with desk.begin() as tx:
        found = STOCK.find(tx, "late")
    assert found is not None
    assert found.state == "expired"


@each_database
def test_a_late_confirm_keeps_its_hold_or_takes_the_stock_again_or_is_refused(shop: Shop) -> None:
    desk = stocked(shop, a=2)
    with desk.begin() as tx:
        for key in ("one", "two"):
            STOCK.reserve(tx, {"a": 1}, key=key, hold=0.1)
    wait_until_overdue(desk, "two")
    with desk.begin() as tx, pytest.raises(ReservationExpired):
        STOCK.confirm(tx, "one", late=False)
    with desk.begin() as tx:
        assert STOCK.confirm(tx, "one").state == "confirmed"  # nobody was given it
    with desk.begin() as tx:
        assert STOCK.sweep(tx) == 1
        assert STOCK.sweep(tx) == 0
    assert shelf(desk) == {"a": 1}
    with desk.begin() as tx, pytest.raises(ReservationExpired):
        STOCK.confirm(tx, "two", late=False)
    with desk.begin() as tx:
        STOCK.reserve(tx, {"a": 1}, key="three")
    with desk.begin() as tx, pytest.raises(ReservationExpired, match="given to others") as refused:
        STOCK.confirm(tx, "two")
    assert refused.value.state == "expired"
    with desk.begin() as tx:
        STOCK.cancel(tx, "three")
    with desk.begin() as tx:
        assert STOCK.confirm(tx, "two").state == "confirmed"  # as much is there again
    assert shelf(desk) == {"a": 0}


@each_database
def test_a_sweep_gives_back_what_is_over_and_removes_old_records(shop: Shop) -> None:
    desk = stocked(shop, a=5, b=5)
    with desk.begin() as tx:
        for number in range(4):
            STOCK.reserve(tx, {"a": 1, "b": 1}, key=f"k{number}", hold=0.1)
        STOCK.reserve(tx, {"a": 1}, key="held")
        STOCK.confirm(tx, "k0")
    wait_until_overdue(desk, "k3")
    with desk.begin() as tx:
        assert STOCK.sweep(tx, limit=2) == 2
    with desk.begin() as tx:
        assert STOCK.sweep(tx, limit=2) == 1
    assert shelf(desk) == {"a": 3, "b": 4}
    with desk.begin() as tx:
        Stock("tickets", keep=0).sweep(tx)
        assert [each.key for each in STOCK.reservations(tx)] == ["held"]


@each_database
def test_restock_adds_and_takes_away_but_not_what_is_held(shop: Shop) -> None:
    desk = stocked(shop, a=3)
    with desk.begin() as tx:
        STOCK.reserve(tx, {"a": 2}, key="k")
    with desk.begin() as tx, pytest.raises(OutOfStock):
        STOCK.restock(tx, {"a": -2})
    with desk.begin() as tx:
        STOCK.restock(tx, {"a": -1, "b": 7})
    with desk.begin() as tx:
        STOCK.restock(tx, {"a": 5})
    assert shelf(desk) == {"a": 5, "b": 7}


@each_database
def test_restock_that_takes_away_too_much_changes_nothing_even_if_the_refusal_is_caught_and_committed(
    shop: Shop,
) -> None:
    desk = stocked(shop, a=3, b=2, c=1)
    for items in ({"a": -1, "b": 5, "c": -2}, {"a": 4, "c": -2}):
        with desk.begin() as tx, pytest.raises(OutOfStock, match="2 of 'c' wanted, 1 available") as short:
            STOCK.restock(tx, items)
        assert (short.value.item, short.value.wanted, short.value.available) == ("c", 2, 1)
        assert shelf(desk) == {"a": 3, "b": 2, "c": 1}


@each_database
def test_two_stocks_do_not_know_each_other_and_names_are_binary(shop: Shop) -> None:
    desk = shop.desk
    for number, name in enumerate(HOSTILE):
        stock = Stock(name)
        with desk.begin() as tx:
            stock.restock(tx, {each: place + number for place, each in enumerate(HOSTILE, 1)})
        with desk.begin() as tx:
            stock.reserve(tx, {name: 1}, key=name)
    for number, name in enumerate(HOSTILE):
        with desk.begin() as tx:
            (found,) = Stock(name).reservations(tx)
            assert (found.key, found.items) == (name, {name: 1})
            levels = {level.item: level.available for level in Stock(name).levels(tx)}
        assert levels == {each: place + number - (each == name) for place, each in enumerate(HOSTILE, 1)}


@each_database
@pytest.mark.parametrize("keys", ["numbers", "texts"])
def test_the_stock_may_be_a_table_of_the_users_own(shop: Shop, keys: str) -> None:
    desk = shop.desk
    kind = "INTEGER" if keys == "numbers" else "VARCHAR(20)"
    quoted = "`{}`" if shop.database == "mysql" else '"{}"'
    number, left = quoted.format("the id"), quoted.format("left % now")
    with desk.begin() as tx:
        desk.run(tx, f"CREATE TABLE product ({number} {kind} PRIMARY KEY, {left} INTEGER NOT NULL CHECK ({left} >= 0))")
    with desk.begin() as tx:
        desk.run(tx, f"INSERT INTO product VALUES ({'1' if keys == 'numbers' else repr('1')}, 3)")
    item: Any = 1 if keys == "numbers" else "1"
    other: Any = 2 if keys == "numbers" else "2"
    stock = Stock("products", table="product", item="the id", available="left % now")
    with desk.begin() as tx:
        stock.reserve(tx, {item: 2}, key="k")
        with pytest.raises(OutOfStock):
            stock.reserve(tx, {item: 2})
        assert stock.levels(tx) == [StockLevel(item, 1, 2)]
    with desk.begin() as tx:
        stock.restock(tx, {item: 4})
        stock.cancel(tx, "k")
        assert stock.available(tx, item) == 7
    with desk.begin() as tx, pytest.raises(ConfigurationError, match="no row for"):
        stock.restock(tx, {other: 4})
    with desk.begin() as tx, pytest.raises(OutOfStock, match="there is no such item"):
        stock.reserve(tx, {other: 4})


@each_database
def test_the_database_itself_lets_no_stock_below_zero(shop: Shop) -> None:
    desk = stocked(shop, a=1)
    with pytest.raises(Exception, match=r"(?i)check|constraint"), desk.begin() as tx:
        desk.run(tx, "UPDATE leasehold_stock SET available = available - 2")
    assert shelf(desk) == {"a": 1}


def autocommitting(shop: Shop) -> Any:
    if shop.database == "sqlite":
        return sqlite3.connect(shop.url.removeprefix("sqlite:///"), isolation_level=None)
    if shop.database == "postgresql":
        return psycopg.connect(shop.url, autocommit=True)
    parts = sqlalchemy.make_url(shop.url)
    login = {"host": parts.host, "port": parts.port, "user": parts.username, "database": parts.database}
    return pymysql.connect(**login, autocommit=True)


@each_database
def test_writing_is_refused_outside_a_transaction_and_reading_is_not(shop: Shop) -> None:
    stocked(shop, a=3)
    with contextlib.closing(autocommitting(shop)) as connection:
        assert STOCK.available(connection, "a") == 3
        for write in (
            lambda: STOCK.reserve(connection, {"a": 1}),
            lambda: STOCK.restock(connection, {"a": 1}),
            lambda: STOCK.confirm(connection, "k"),
            lambda: STOCK.cancel(connection, "k"),
            lambda: STOCK.sweep(connection),
        ):
            with pytest.raises(ConfigurationError, match="outside a transaction"):
                write()
    assert shelf(shop.desk) == {"a": 3}


def test_bad_words_are_refused_before_anything_is_sent() -> None:
    for items in (
        {},
        {"a": 0},
        {"a": -1},
        {"a": True},
        {"a": 1.0},
        {"a": 2**31},
        {"": 1},
        {1: 1},
        {"a": 1, 1: 1},
        ["a"],
    ):
        with pytest.raises(ConfigurationError):
            STOCK.reserve(None, items)  # type: ignore[arg-type]  # before any I/O, so nothing is passed
    for key in ("", "a\0b", "x" * 513, 1):
        with pytest.raises(ConfigurationError):
            STOCK.confirm(None, key)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        STOCK.reservations(None, state="sold")
    with pytest.raises(ConfigurationError):
        STOCK.sweep(None, limit=0)
    with pytest.raises(ConfigurationError):
        Stock("t", hold=0)


@each_database
def test_a_confirm_beside_a_sweep_is_before_or_after_it(shop: Shop) -> None:
    """The row of the reservation is locked by one of them; the sweep goes on without it."""
    desk = stocked(shop, a=1)
    with desk.begin() as tx:
        STOCK.reserve(tx, {"a": 1}, key="k", hold=0.1)
    wait_until_overdue(desk, "k")
    other = shop.other()
    with desk.begin() as tx:
        assert STOCK.confirm(tx, "k").state == "confirmed"
        if shop.database == "sqlite":  # one writer at a time
            with pytest.raises(RetryTransaction), other.begin() as beside:
                STOCK.sweep(beside)
        else:
            with other.begin() as beside:
                assert STOCK.sweep(beside) == 0
            with pytest.raises(OutOfStock), other.begin() as beside:
                STOCK.reserve(beside, {"a": 1})
    with other.begin() as beside:
        assert STOCK.sweep(beside) == 0
    other.close()
    assert shelf(desk) == {"a": 0}


@pytest.mark.parametrize("shop", ["postgresql psycopg", "mysql pymysql"], indirect=True)
def test_the_same_key_at_the_same_time_waits_for_the_first_and_is_given_its_reservation(shop: Shop) -> None:
    desk = stocked(shop, a=5)
    other, given = shop.other(), []

    def again() -> None:
        with other.begin() as tx:
            given.append(STOCK.reserve(tx, {"a": 1}, key="k"))

    with desk.begin() as tx:
        first = STOCK.reserve(tx, {"a": 1}, key="k")
        thread = threading.Thread(target=again)
        thread.start()
        thread.join(0.3)
        assert given == []
    thread.join()
    other.close()
    assert given == [first]
    assert shelf(desk) == {"a": 4}


@pytest.mark.parametrize("shop", ["postgresql psycopg", "mysql pymysql"], indirect=True)
def test_an_error_between_two_steps_cannot_be_committed(shop: Shop) -> None:
    """The second item is locked by somebody else for longer than this connection waits."""
    desk = stocked(shop, a=5, b=5)
    other = shop.other()
    with other.begin() as beside:
        STOCK.reserve(beside, {"b": 1})
        with desk.begin() as tx:
            desk.run(
                tx, "SET innodb_lock_wait_timeout = 1" if shop.database == "mysql" else "SET lock_timeout = '50ms'"
            )
            with pytest.raises(RetryTransaction):
                STOCK.reserve(tx, {"a": 1, "b": 1}, key="k")
    other.close()
    assert shelf(desk) == {"a": 5, "b": 4}
    with desk.begin() as tx:
        assert STOCK.find(tx, "k") is None


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("shop", ["postgresql psycopg", "mysql pymysql"], indirect=True)
def test_a_transaction_that_sees_an_older_moment_decides_on_the_present_or_is_run_again(shop: Shop, level: str) -> None:
    desk = stocked(shop, a=1)
    other = shop.other()
    begin = f"SET TRANSACTION ISOLATION LEVEL {level}"
    if shop.database == "mysql":
        with other.begin() as beside:
            other.run(beside, begin.replace("TRANSACTION", "SESSION TRANSACTION"))
    try:
        with other.begin() as beside:
            if shop.database == "postgresql":
                other.run(beside, begin)
            elif level == "SERIALIZABLE":
                other.run(beside, "SELECT 1")  # its reads lock: one of a row would block the writer
            other.run(beside, "SELECT count(*) FROM leasehold_stock WHERE stock = 'none'")
            with desk.begin() as tx:
                STOCK.reserve(tx, {"a": 1})
            STOCK.reserve(beside, {"a": 1})
    except (OutOfStock, RetryTransaction) as error:
        assert isinstance(error, OutOfStock) == (shop.database == "mysql"), error
    else:
        pytest.fail("sold twice")
    other.close()
    assert shelf(desk) == {"a": 0}


@pytest.mark.parametrize("shop", ["mysql pymysql"], indirect=True)
def test_mysql_is_told_to_make_the_tables_beforehand(shop: Shop) -> None:
    for table in ("leasehold_stock", "leasehold_reservation"):
        with shop.desk.begin() as tx:
            shop.desk.run(tx, f"DROP TABLE {table}")
    with (
        pytest.raises(ConfigurationError, match="leasehold schema reservations --dialect mysql"),
        shop.desk.begin() as tx,
    ):
        STOCK.reserve(tx, {"a": 1})


@pytest.mark.parametrize("shop", ["postgresql psycopg", "sqlite sqlite3"], indirect=True)
def test_what_the_schema_prints_is_what_is_made_on_first_use(shop: Shop) -> None:
    for statement in reservations_schema(shop.database).split(";\n"):
        with shop.desk.begin() as tx:
            if statement.strip():
                shop.desk.run(tx, statement)
    stocked(shop, a=1)
    with shop.desk.begin() as tx:
        STOCK.reserve(tx, {"a": 1})
    if shop.database == "sqlite":
        with pytest.raises(ConfigurationError, match="schema= is for PostgreSQL"):
            Stock("t", schema="x").schema("sqlite")
    else:
        assert '"x".leasehold_stock' in Stock("t", schema="x").schema()


@pytest.mark.parametrize("shop", ["postgresql psycopg", "mysql pymysql"], indirect=True)
@pytest.mark.timeout(sized(120, 1800))
def test_baskets_in_whatever_order_never_wait_for_each_other(shop: Shop) -> None:
    """Some expire, some are cancelled, some confirmed, others swept meanwhile; no transaction is run again."""
    items = {"a": 40, "b": 40, "c": 8, "d": 40, "e": 8}
    desk = stocked(shop, **items)
    errors: list[BaseException] = []
    sold: Counter[str] = Counter()
    threads = [threading.Thread(target=go_shopping, args=(shop.other(), sold, errors, seed)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    while True:
        with desk.begin() as tx:
            STOCK.sweep(tx)
            levels = STOCK.levels(tx)
        if all(level.held == 0 for level in levels):
            break
        time.sleep(0.02)
    assert shelf(desk) == {item: count - sold[item] for item, count in items.items()}


def go_shopping(desk: Desk, sold: Counter[str], errors: list[BaseException], seed: int) -> None:
    draw = random.Random(seed)
    try:
        for _ in range(sized(15, 300)):
            wanted = {item: draw.randint(1, 3) for item in draw.sample("abcde", draw.randint(1, 4))}
            try:
                with desk.begin() as tx:
                    key = STOCK.reserve(tx, wanted, hold=draw.choice([0.1, 0.5])).key
            except OutOfStock:
                continue
            what = draw.choice(["cancel", "confirm", "sweep", "leave", "leave"])
            with contextlib.suppress(ReservationExpired), desk.begin() as tx:
                if what == "cancel":
                    STOCK.cancel(tx, key)
                elif what == "sweep":
                    STOCK.sweep(tx)
                elif what == "confirm":
                    STOCK.confirm(tx, key)
            with desk.begin() as tx:
                found = STOCK.find(tx, key)
            if found is not None and found.state == "confirmed":
                sold.update(wanted)
    except BaseException as error:
        errors.append(error)
    finally:
        desk.close()
