"""Row locks: what another transaction gets meanwhile, on every database and over every kind of connection."""

from __future__ import annotations

import itertools
import pickle
import sqlite3
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from leasehold.errors import ConfigurationError, RetryTransaction, RowBusy
from leasehold.sql import is_retryable, lock_free_rows, lock_row, lock_rows
from leasehold.sql.row_locks.lock_request import in_order
from tests.sql.pairs import EACH_WAY, Pair, fresh_url, pair_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TABLE = (
    "CREATE TABLE stock (id INTEGER PRIMARY KEY, n INTEGER NOT NULL)",
    "INSERT INTO stock VALUES (1, 10), (2, 20), (3, 30)",
)
REAL = [kind for kind in EACH_WAY if not kind.startswith("sqlite")]
PLAIN = ["postgresql psycopg", "mysql pymysql"]


@pytest.fixture
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    with pair_of(request, tmp_path, *TABLE) as pair:
        yield pair


everywhere = pytest.mark.parametrize("pair", EACH_WAY, indirect=True)
with_row_locks = pytest.mark.parametrize("pair", REAL, indirect=True)
plain = pytest.mark.parametrize("pair", PLAIN, indirect=True)


@everywhere
def test_locked_row_is_given_and_another_is_told_that_it_is_busy(pair: Pair) -> None:
    with pair.other.begin() as holder:
        assert lock_row(holder, "stock", {"id": 1}) == {"id": 1, "n": 10}
        with pytest.raises(RowBusy, match="locked by another") as caught, pair.one.begin() as tx:
            lock_row(tx, "stock", {"id": 1}, wait=0)
        assert (caught.value.table, caught.value.key) == ("stock", {"id": 1})
        assert is_retryable(caught.value)
        assert pickle.loads(pickle.dumps(caught.value)).key == {"id": 1}
    with pair.one.begin() as tx:
        assert lock_row(tx, "stock", {"id": 1}, wait=0) == {"id": 1, "n": 10}
        assert lock_row(tx, "stock", {"id": 9}, wait=0) is None


@with_row_locks
def test_busy_row_leaves_the_transaction_and_its_settings_as_they_were(pair: Pair) -> None:
    with pair.other.begin() as holder, pair.one.begin() as tx:
        lock_row(holder, "stock", {"id": 2})
        pair.one.run(tx, "UPDATE stock SET n = 11 WHERE id = 1")
        if pair.database == "postgresql":
            pair.one.run(tx, "SET LOCAL lock_timeout = '54321ms'")
        for wait in (0, 1):
            with pytest.raises(RowBusy, match=f"wait={wait} s"):
                lock_rows(tx, "stock", [{"id": 3}, {"id": 2}], wait=wait)
        assert lock_row(tx, "stock", {"id": 1}, wait=5) == {"id": 1, "n": 11}
        if pair.database == "postgresql":
            assert pair.one.run(tx, "SHOW lock_timeout") == [("54321ms",)]
            assert lock_row(holder, "stock", {"id": 3}, wait=0), "a call that failed keeps no lock"
    with pair.other.begin() as tx:
        assert lock_row(tx, "stock", {"id": 1}) == {"id": 1, "n": 11}


@with_row_locks
def test_shared_locks_go_together_and_keep_a_writer_out(pair: Pair) -> None:
    with pair.other.begin() as holder, pair.one.begin() as tx:
        assert lock_row(holder, "stock", {"id": 1}, share=True)
        assert lock_row(tx, "stock", {"id": 1}, share=True, wait=0)
        assert lock_rows(tx, "stock", [{"id": 1}], share=True, skip_locked=True) == [{"id": 1, "n": 10}]
        with pytest.raises(RowBusy):
            lock_row(tx, "stock", {"id": 1}, wait=0)


@with_row_locks
def test_what_is_locked_is_skipped(pair: Pair) -> None:
    with pair.other.begin() as holder, pair.one.begin() as tx:
        lock_row(holder, "stock", {"id": 1})
        keys = [{"id": 3}, {"id": 1}, {"id": 9}]
        assert lock_rows(tx, "stock", keys, skip_locked=True) == [{"id": 3, "n": 30}, None, None]
        assert lock_free_rows(tx, "stock", {}, order_by="id") == [{"id": 2, "n": 20}]
        assert lock_free_rows(tx, "stock", {"n": 30}, order_by=("n", "id"), limit=5) == [{"id": 3, "n": 30}]
        assert lock_free_rows(tx, "stock", {"n": 10}, order_by="id") == []


@plain
def test_waiter_gets_the_row_as_the_holder_left_it(pair: Pair) -> None:
    seen: list[Any] = []

    def wait() -> None:
        with pair.other.begin() as tx:
            seen.append(lock_row(tx, "stock", {"id": 1}, wait="60s"))

    with pair.one.begin() as tx:
        assert lock_row(tx, "stock", {"id": 1})
        pair.one.run(tx, "UPDATE stock SET n = 9 WHERE id = 1")
        waiter = threading.Thread(target=wait)
        waiter.start()
        waiter.join(0.2)
        assert waiter.is_alive()
    waiter.join()
    assert seen == [{"id": 1, "n": 9}]


@plain
def test_two_that_lock_the_same_rows_in_opposite_order_do_not_deadlock(pair: Pair) -> None:
    keys = [{"id": 1}, {"id": 2}, {"id": 3}]
    errors: list[BaseException] = []

    def many(desk: Any, order: list[dict[str, int]]) -> None:
        try:
            for _ in range(30):
                with desk.begin() as tx:
                    assert [row and row["id"] for row in lock_rows(tx, "stock", order)] == [k["id"] for k in order]
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=many, args=(pair.one, keys)),
        threading.Thread(target=many, args=(pair.other, keys[::-1])),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


@plain
def test_deadlock_of_single_locks_asks_for_another_run_and_says_what_to_do(pair: Pair) -> None:
    """The control of the test above: without the fixed order the database has to end one of the two."""
    outcomes: list[BaseException | None] = []
    both = threading.Barrier(2)

    def crosswise(desk: Any, first: int, second: int) -> None:
        try:
            with desk.begin() as tx:
                lock_row(tx, "stock", {"id": first})
                both.wait(60)
                lock_row(tx, "stock", {"id": second})
            outcomes.append(None)
        except BaseException as error:
            outcomes.append(error)

    threads = [
        threading.Thread(target=crosswise, args=(pair.one, 1, 2)),
        threading.Thread(target=crosswise, args=(pair.other, 2, 1)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (error,) = (each for each in outcomes if each is not None)
    assert isinstance(error, RetryTransaction)
    assert "lock_rows" in str(error)


def test_row_that_changed_after_the_snapshot_of_postgresql_asks_for_another_run(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = fresh_url(request, "postgresql", tmp_path)
    with psycopg.connect(url) as one, psycopg.connect(url, autocommit=True) as other:
        for statement in TABLE:
            other.execute(statement.encode())
        one.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        one.execute("SELECT 1 FROM stock")
        other.execute("UPDATE stock SET n = 9 WHERE id = 1")
        with pytest.raises(RetryTransaction, match="changed after the moment"):
            lock_row(one, "stock", {"id": 1})
        one.rollback()
        assert lock_row(one, "stock", {"id": 1}) == {"id": 1, "n": 9}


@pytest.mark.parametrize("pair", ["mysql pymysql"], indirect=True)
def test_lock_of_mariadb_gives_the_present_row_although_reads_see_an_older_one(pair: Pair) -> None:
    with pair.one.begin() as tx:
        assert pair.one.run(tx, "SELECT n FROM stock WHERE id = 1") == [(10,)]
        with pair.other.begin() as other:
            pair.other.run(other, "UPDATE stock SET n = 9 WHERE id = 1")
        assert lock_row(tx, "stock", {"id": 1}) == {"id": 1, "n": 9}
        assert pair.one.run(tx, "SELECT n FROM stock WHERE id = 1") == [(10,)], "so one decides on what the lock gave"


@pytest.mark.parametrize("pair", ["mysql pymysql"], indirect=True)
def test_limit_by_a_setting_of_the_session_is_put_back(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """What MySQL gets, which has no WAIT n; MariaDB understands it as well."""
    from leasehold.sql.row_locks import mysql as row_locks_mysql

    async def is_mysql(wire: object) -> bool:
        return False

    monkeypatch.setattr(row_locks_mysql, "_is_mariadb", is_mysql)
    with pair.other.begin() as holder, pair.one.begin() as tx:
        lock_row(holder, "stock", {"id": 1})
        with pytest.raises(RowBusy):
            lock_row(tx, "stock", {"id": 1}, wait=1)
        assert pair.one.run(tx, "SELECT @@innodb_lock_wait_timeout") == [(50,)]
        with pytest.raises(ConfigurationError, match="whole seconds"):
            lock_row(tx, "stock", {"id": 1}, wait="1500ms")


@pytest.mark.parametrize("pair", ["sqlite sqlite3", "sqlite sqlalchemy core"], indirect=True)
def test_sqlite_takes_the_whole_file_and_refuses_what_it_has_not(pair: Pair) -> None:
    with pair.one.begin() as tx:
        lock_row(tx, "stock", {"id": 1})
        with pytest.raises(sqlite3.OperationalError, match="locked"), pair.other.begin() as other:
            pair.other.run(other, "UPDATE stock SET n = 0 WHERE id = 2")
    for refused in (
        lambda tx: lock_row(tx, "stock", {"id": 1}, share=True),
        lambda tx: lock_rows(tx, "stock", [{"id": 1}], skip_locked=True),
        lambda tx: lock_free_rows(tx, "stock", {}, order_by="id"),
    ):
        with pytest.raises(ConfigurationError, match="SQLite has no row locks"), pair.one.begin() as tx:
            refused(tx)


def test_transaction_of_sqlite_that_has_read_before_still_gets_the_write_lock(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db", timeout=0)) as one:
        with closing(sqlite3.connect(tmp_path / "x.db", timeout=0)) as other:
            one.execute("PRAGMA journal_mode = WAL")
            for statement in TABLE:
                one.execute(statement)
            one.commit()
            one.execute("BEGIN")
            one.execute("SELECT * FROM stock").fetchall()
            assert lock_row(one, "stock", {"id": 1}) == {"id": 1, "n": 10}
            with pytest.raises(RowBusy, match="whole file"):
                lock_row(other, "stock", {"id": 2})
            one.commit()
            one.execute("BEGIN")
            one.execute("SELECT * FROM stock").fetchall()
            other.execute("UPDATE stock SET n = 0 WHERE id = 2")
            other.commit()
            with pytest.raises(RetryTransaction):
                lock_row(one, "stock", {"id": 1})


def test_outside_a_transaction_it_is_refused(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as connection:
        with pytest.raises(ConfigurationError, match="outside a transaction"):
            lock_row(connection, "stock", {"id": 1})
    with psycopg.connect(fresh_url(request, "postgresql", tmp_path), autocommit=True) as server:
        for call in (
            lambda: lock_row(server, "stock", {"id": 1}),
            lambda: lock_free_rows(server, "stock", {}, order_by="id"),
        ):
            with pytest.raises(ConfigurationError, match="outside a transaction"):
                call()


def test_order_of_locks_does_not_depend_on_how_they_were_named() -> None:
    keys = [{"shop": shop, "item": item} for shop, item in itertools.product((2, 1), ("b", "a"))]
    orders = {tuple(map(str, in_order(some))) for some in itertools.permutations(keys)}
    assert len(orders) == 1
    assert len(in_order([*keys, *keys])) == 4


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ([{"id": 1}, {"id": "a"}], {}),
        ([{"id": 1}, {"name": 1}], {}),
        ([{"id": None}], {}),
        ([{}], {}),
        ([{"id": 1}], {"wait": -1}),
        ([{"id": 1}], {"wait": 1, "skip_locked": True}),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, keys: Any, words: Any) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection, pytest.raises(ConfigurationError):
        lock_rows(connection, "stock", keys, **words)
