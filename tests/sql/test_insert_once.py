"""`insert_once`: one of all inserts a key, the others get its row; nothing else is taken for a row that exists."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from leasehold.errors import ConfigurationError, RetryTransaction, UniqueConflict
from leasehold.sql import insert_once
from tests.sql.pairs import EACH_WAY, Pair, fresh_url, pair_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TABLE = (
    """
CREATE TABLE bookings (
  room INTEGER NOT NULL, day VARCHAR(10) NOT NULL, guest VARCHAR(5) NOT NULL, code VARCHAR(20),
  PRIMARY KEY (room, day), CONSTRAINT one_code UNIQUE (code)
)""",
)
KEY = ("room", "day")


@pytest.fixture
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    with pair_of(request, tmp_path, *TABLE) as pair:
        yield pair


everywhere = pytest.mark.parametrize("pair", EACH_WAY, indirect=True)
plain = pytest.mark.parametrize("pair", ["postgresql psycopg", "mysql pymysql", "sqlite sqlite3"], indirect=True)


def booking(room: int, guest: str | None, code: str | None = None) -> dict[str, Any]:
    return {"room": room, "day": "monday", "guest": guest, "code": code}


@everywhere
def test_first_inserts_and_the_others_get_its_row(pair: Pair) -> None:
    with pair.one.begin() as tx:
        assert insert_once(tx, "bookings", booking(1, "ann"), key=KEY) == (True, booking(1, "ann"))
        assert insert_once(tx, "bookings", booking(1, "bob"), key=KEY) == (False, booking(1, "ann"))
    with pair.other.begin() as tx:
        inserted, row = insert_once(tx, "bookings", booking(1, "cid"), key=KEY)
        assert (inserted, row["guest"]) == (False, "ann")
        assert insert_once(tx, "bookings", booking(2, "cid"), key=["day", "room"]).inserted


@everywhere
def test_another_constraint_is_told_apart_and_the_transaction_goes_on(pair: Pair) -> None:
    with pair.one.begin() as tx:
        assert insert_once(tx, "bookings", booking(1, "ann", "x"), key=KEY).inserted
        with pytest.raises(UniqueConflict, match="another constraint") as caught:
            insert_once(tx, "bookings", booking(2, "bob", "x"), key=KEY)
        assert caught.value.table == "bookings"
        assert caught.value.columns == ("code",) or caught.value.constraint == "one_code"
        assert insert_once(tx, "bookings", booking(3, "bob", "y"), key=KEY).inserted
        assert insert_once(tx, "bookings", booking(4, "bob", "x"), key="code") == (False, booking(1, "ann", "x"))
        assert insert_once(tx, "bookings", booking(1, "bob", "y"), key=KEY) == (False, booking(1, "ann", "x"))
    with pair.other.begin() as tx:
        assert list(pair.other.run(tx, "SELECT room FROM bookings ORDER BY room")) == [(1,), (3,)]


@everywhere
def test_errors_of_the_database_are_not_taken_for_a_row_that_exists(pair: Pair) -> None:
    with pair.one.begin() as tx:
        with pytest.raises(Exception, match=r"(?i)null"):
            insert_once(tx, "bookings", booking(1, None), key=KEY)
        if pair.database != "sqlite":  # which has no longest text
            with pytest.raises(Exception, match=r"(?i)too long"):
                insert_once(tx, "bookings", booking(1, "too long a name"), key=KEY)
        if pair.database != "mysql" or "Django" not in type(pair.one).__name__:
            assert insert_once(tx, "bookings", booking(1, "ann"), key=KEY).inserted


@everywhere
def test_key_without_a_constraint_is_refused(pair: Pair) -> None:
    for key in ("room", ("day", "guest"), ("room", "day", "code")):
        with pytest.raises(ConfigurationError, match="no primary key or unique constraint"), pair.one.begin() as tx:
            insert_once(tx, "bookings", booking(1, "ann", "x"), key=key)
    with pair.other.begin() as tx:
        assert list(pair.other.run(tx, "SELECT * FROM bookings")) == []


@pytest.mark.parametrize("key", [(), "nothing", ("room", "code")])
def test_key_without_values_is_refused(tmp_path: Path, key: Any) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection, pytest.raises(ConfigurationError):
        insert_once(connection, "bookings", booking(1, "ann"), key=key)


@plain
def test_second_waits_for_the_first_and_inserts_if_that_is_rolled_back(pair: Pair) -> None:
    if pair.database == "sqlite":
        return  # one writer at a time anyway
    for first_commits in (True, False):
        answers: list[Any] = []

        def second(answers: list[Any] = answers) -> None:
            with pair.other.begin() as tx:
                answers.append(insert_once(tx, "bookings", booking(1, "bob"), key=KEY))

        waiter = threading.Thread(target=second)
        try:
            with pair.one.begin() as tx:
                pair.one.run(tx, "DELETE FROM bookings")
                assert insert_once(tx, "bookings", booking(1, "ann"), key=KEY).inserted
                waiter.start()
                waiter.join(0.2)
                assert waiter.is_alive()
                if not first_commits:
                    raise RuntimeError("roll back")
        except RuntimeError:
            pass
        waiter.join()
        # a rollback brings the row of the round before back, which was ann's
        assert answers == [(False, booking(1, "ann"))]
        with pair.one.begin() as tx:
            pair.one.run(tx, "DELETE FROM bookings")
            assert insert_once(tx, "bookings", booking(1, "ann"), key=KEY).inserted


def test_row_that_came_after_the_snapshot(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """PostgreSQL asks for another run; MariaDB shows the present row."""
    with psycopg.connect(fresh_url(request, "postgresql", tmp_path)) as one, psycopg.connect(one.info.dsn) as other:
        path = one.execute("SHOW search_path").fetchone()
        assert path is not None
        other.execute(f"SET search_path = {path[0]}".encode())
        other.execute(TABLE[0].encode())
        other.commit()
        one.commit()
        one.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        one.execute("SELECT 1 FROM bookings")
        insert_once(other, "bookings", booking(1, "ann"), key=KEY)
        other.commit()
        with pytest.raises(RetryTransaction):
            insert_once(one, "bookings", booking(1, "bob"), key=KEY)


@pytest.mark.parametrize("pair", ["mysql pymysql"], indirect=True)
def test_row_that_came_after_the_snapshot_of_mariadb_is_given(pair: Pair) -> None:
    with pair.one.begin() as tx:
        assert pair.one.run(tx, "SELECT * FROM bookings") == []
        with pair.other.begin() as other:
            insert_once(other, "bookings", booking(1, "ann"), key=KEY)
        assert pair.one.run(tx, "SELECT * FROM bookings") == []
        assert insert_once(tx, "bookings", booking(1, "bob"), key=KEY) == (False, booking(1, "ann"))


def test_it_works_outside_a_transaction(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with psycopg.connect(fresh_url(request, "postgresql", tmp_path), autocommit=True) as connection:
        connection.execute(TABLE[0].encode())
        assert insert_once(connection, "bookings", booking(1, "ann"), key=KEY).inserted
        assert not insert_once(connection, "bookings", booking(1, "bob"), key=KEY).inserted


def test_overlapping_slots_of_an_exclusion_constraint_are_told(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with psycopg.connect(fresh_url(request, "postgresql", tmp_path)) as connection:
        connection.execute(
            "CREATE TABLE slots (id integer PRIMARY KEY, during int4range, "
            "CONSTRAINT no_overlap EXCLUDE USING gist (during WITH &&))"
        )
        assert insert_once(connection, "slots", {"id": 1, "during": "[1,5)"}, key="id").inserted
        with pytest.raises(UniqueConflict) as caught:
            insert_once(connection, "slots", {"id": 2, "during": "[4,9)"}, key="id")
        assert caught.value.constraint == "no_overlap"
        assert insert_once(connection, "slots", {"id": 2, "during": "[5,9)"}, key="id").inserted


def test_row_that_is_neither_inserted_nor_found_is_tried_a_few_times_and_no_more(tmp_path: Path) -> None:
    asked: list[str] = []
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
        connection.execute("CREATE TRIGGER no BEFORE INSERT ON t BEGIN SELECT RAISE(IGNORE); END")
        connection.set_trace_callback(asked.append)
        with pytest.raises(
            RetryTransaction, match=r"\{'id': 1\} of t was there at every insert and gone at every look"
        ):
            insert_once(connection, "t", {"id": 1}, key="id")
    assert len([statement for statement in asked if statement.startswith('SELECT "t".*')]) == 5


def test_conflict_names_what_is_in_the_way(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b TEXT, UNIQUE (a, b))")
        connection.execute("CREATE TABLE names (id INTEGER PRIMARY KEY, a TEXT)")
        connection.execute("CREATE UNIQUE INDEX lower_a ON names (lower(a))")
        insert_once(connection, "names", {"id": 1, "a": "x"}, key="id")
        insert_once(connection, "t", {"id": 1, "a": "x", "b": "y"}, key="id")
        with pytest.raises(UniqueConflict, match=r"\(a, b\).*none has the key \{'id': 2\}") as caught:
            insert_once(connection, "t", {"id": 2, "a": "x", "b": "y"}, key="id")
        assert (caught.value.table, caught.value.constraint, caught.value.columns) == ("t", None, ("a", "b"))
        with pytest.raises(UniqueConflict, match=r"\(lower_a\)") as caught:
            insert_once(connection, "names", {"id": 2, "a": "X"}, key="id")
        assert (caught.value.constraint, caught.value.columns) == ("lower_a", ())
        with pytest.raises(ConfigurationError, match="'id', 'b'"):
            insert_once(connection, "t", {"a": "x"}, key=("id", "a", "b"))


@pytest.mark.parametrize("pair", ["mysql pymysql"], indirect=True)
def test_index_of_mariadb_that_keeps_no_two_keys_apart_is_no_constraint(pair: Pair) -> None:
    with pair.other.begin() as tx:
        pair.other.run(tx, "CREATE TABLE beginnings (code VARCHAR(20), n INTEGER, UNIQUE KEY (code(3)), KEY (n))")
    with pair.one.begin() as tx:
        for key in ("code", "n"):
            with pytest.raises(ConfigurationError, match="no primary key or unique constraint on exactly"):
                insert_once(tx, "beginnings", {"code": "abcd", "n": 1}, key=key)
    with pair.other.begin() as tx:
        pair.other.run(tx, "ALTER TABLE beginnings ADD UNIQUE KEY whole (n, code)")
        ((home,),) = pair.other.run(tx, "SELECT DATABASE()")
    with pair.one.begin() as tx:  # an index that was added since is found
        values = {"code": "abcd", "n": 1}
        assert insert_once(tx, (home, "beginnings"), values, key=("code", "n")) == (True, values)
        assert insert_once(tx, "beginnings", values, key=("code", "n")) == (False, values)
        with pytest.raises(UniqueConflict) as caught:
            insert_once(tx, "beginnings", {"code": "abcx", "n": 1}, key=("code", "n"))
        assert caught.value.constraint == "code"


@pytest.mark.parametrize("pair", ["mysql pymysql"], indirect=True)
def test_value_that_mariadb_has_changed_on_its_way_is_told(pair: Pair) -> None:
    """Without the strict mode a text that is too long is cut off, and would be the key of another row."""
    with pytest.raises(ConfigurationError, match="cannot be found by that key: the database has stored another value"):
        with pair.one.begin() as tx:
            pair.one.run(tx, "SET SESSION sql_mode = ''")
            insert_once(tx, "bookings", {"room": 1, "day": "the day after", "guest": "ann", "code": None}, key=KEY)
