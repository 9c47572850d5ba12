"""`cas_update`: of two writers that have read the same version one writes, over every kind of connection."""

from __future__ import annotations

import pickle
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from leasehold.errors import ConfigurationError, RetryTransaction, VersionConflict
from leasehold.sql import cas_update, fenced_update
from tests.sql.desks import make_desk, prepared_desk
from tests.sql.pairs import EVERYWHERE, Pair, pair_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.sql.desks import Desk

TABLE = (
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, state VARCHAR(50), version BIGINT NOT NULL DEFAULT 1)",
    "INSERT INTO orders (id, state) VALUES (1, 'new'), (2, 'new')",
)
HOSTILE = ["a'b", 'a"b', "a`b", "a;DROP TABLE t", "%s %(version)s", "100%", ":version", "? $1", "Aä"]


@pytest.fixture(params=EVERYWHERE)
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    with prepared_desk(request, tmp_path, *TABLE) as desk:
        yield desk


def write(desk: Desk, state: str, version: int, order: int = 1) -> int:
    with desk.begin() as tx:
        return cas_update(tx, "orders", {"state": state}, where={"id": order}, version=version)


def orders(desk: Desk) -> list[tuple[Any, ...]]:
    with desk.begin() as tx:
        return list(desk.run(tx, "SELECT id, state, version FROM orders ORDER BY id"))


def test_second_writer_of_a_version_is_refused_and_told_the_present_row(desk: Desk) -> None:
    assert write(desk, "paid", 1) == 2
    with pytest.raises(VersionConflict) as caught:
        write(desk, "lost", 1)
    conflict = caught.value
    assert (conflict.table, conflict.key, conflict.expected, conflict.version) == ("orders", {"id": 1}, 1, 2)
    assert conflict.current == {"id": 1, "state": "paid", "version": 2}
    assert not conflict.gone
    assert write(desk, "sent", 2) == 3
    assert orders(desk) == [(1, "sent", 3), (2, "new", 1)]
    again = pickle.loads(pickle.dumps(conflict))
    assert (again.current, again.version, str(again)) == (conflict.current, 2, str(conflict))


def test_row_that_is_gone_is_told_apart(desk: Desk) -> None:
    with pytest.raises(VersionConflict, match="gone") as caught:
        write(desk, "paid", 1, order=3)
    assert caught.value.gone
    assert (caught.value.current, caught.value.version) == (None, None)


def test_same_values_count_as_a_write(desk: Desk) -> None:
    """MySQL counts only rows that have changed, unless the client asks for those that fit; the version always does."""
    assert write(desk, "new", 1) == 2
    with desk.begin() as tx:
        assert cas_update(tx, "orders", {}, where={"id": 1}, version=2) == 3
    assert orders(desk)[0] == (1, "new", 3)


def test_condition_that_is_no_key_is_refused(desk: Desk) -> None:
    with pytest.raises(ConfigurationError, match="fits 2 rows"), desk.begin() as tx:
        cas_update(tx, "orders", {"state": "all"}, where={"state": "new"}, version=1)
    assert [state for _, state, _ in orders(desk)] == ["new", "new"]


def test_names_and_values_are_never_read_as_sql(desk: Desk, request: pytest.FixtureRequest) -> None:
    mark = "`" if "mysql" in request.node.name else '"'
    for name in HOSTILE:
        quoted = mark + name.replace(mark, mark * 2) + mark
        with desk.begin() as tx:
            colons = "sqlalchemy" in type(tx).__module__
            for text in (
                f"CREATE TABLE {quoted} ({quoted} VARCHAR(50), id VARCHAR(50) PRIMARY KEY, version BIGINT NOT NULL)",
                f"INSERT INTO {quoted} VALUES ('', 'one', 1)",
            ):
                desk.run(tx, text.replace(":", r"\:") if colons else text)
        with desk.begin() as tx:
            assert cas_update(tx, name, {name: name, "id": name}, where={"id": "one"}, version=1) == 2
            assert fenced_update(tx, 3, name, {name: name}, where={"id": name}, column="version")
            with pytest.raises(VersionConflict) as caught:
                cas_update(tx, name, {name: "x"}, where={name: name, "id": name}, version=2)
            assert caught.value.current == {name: name, "id": name, "version": 3}
    assert len(orders(desk)) == 2


@pytest.mark.parametrize(
    ("values", "where", "version"),
    [
        ({"state": "x"}, {}, 1),
        ({"state": "x"}, {"id": None}, 1),
        ({"state": "x"}, "id", 1),
        ("state", {"id": 1}, 1),
        ({"version": 7}, {"id": 1}, 1),
        ({"state": "x"}, {"version": 0}, 1),
        ({"state": "x"}, {"id": 1}, "1"),
        ({"state": "x"}, {"id": 1}, True),
        ({"": "x"}, {"id": 1}, 1),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, values: Any, where: Any, version: Any) -> None:
    with closing(sqlite3.connect(tmp_path / "data.db")) as connection, pytest.raises(ConfigurationError):
        cas_update(connection, "orders", values, where=where, version=version)


def test_snapshot_of_sqlite_that_is_out_of_date_asks_for_another_run(tmp_path: Path) -> None:
    desk, other = (make_desk("sqlite3", f"sqlite:///{tmp_path}/data.db") for _ in range(2))
    with desk.begin() as tx:
        tx.execute("PRAGMA journal_mode = WAL")
        for statement in TABLE:
            tx.execute(statement)
    with pytest.raises(RetryTransaction), desk.begin() as tx:
        tx.execute("BEGIN")
        tx.execute("SELECT * FROM orders").fetchall()
        write(other, "paid", 1, order=2)
        cas_update(tx, "orders", {"state": "x"}, where={"id": 1}, version=1)
    desk.close()
    other.close()


@pytest.fixture
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    with pair_of(request, tmp_path, *TABLE) as pair:
        yield pair


SNAPSHOTS = ["mysql pymysql", "mysql sqlalchemy core", "mysql sqlalchemy orm"]  # Django sets READ COMMITTED


@pytest.mark.parametrize("pair", SNAPSHOTS, indirect=True)
def test_loser_in_mariadb_is_told_the_present_row_and_not_that_of_its_snapshot(pair: Pair) -> None:
    with pair.one.begin() as tx:
        assert list(pair.one.run(tx, "SELECT version FROM orders WHERE id = 1")) == [(1,)]
        assert write(pair.other, "paid", 1) == 2
        with pytest.raises(VersionConflict) as caught:
            cas_update(tx, "orders", {"state": "lost"}, where={"id": 1}, version=1)
        assert caught.value.current == {"id": 1, "state": "paid", "version": 2}
        assert list(pair.one.run(tx, "SELECT version FROM orders WHERE id = 1")) == [(1,)], "the snapshot"


@pytest.mark.parametrize(
    ("pair", "setting"),
    [
        ("postgresql psycopg", "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"),
        ("postgresql sqlalchemy orm", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"),
        ("postgresql django", "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"),
        ("mysql pymysql", "SET SESSION innodb_snapshot_isolation = ON"),
        ("mysql sqlalchemy orm", "SET SESSION innodb_snapshot_isolation = ON"),
    ],
    indirect=["pair"],
)
def test_loser_that_may_not_see_the_present_row_is_told_the_same_without_it(pair: Pair, setting: str) -> None:
    with pytest.raises(VersionConflict, match="after the moment") as caught, pair.one.begin() as tx:
        pair.one.run(tx, setting)
        pair.one.run(tx, "SELECT version FROM orders WHERE id = 1")
        write(pair.other, "paid", 1)
        cas_update(tx, "orders", {"state": "lost"}, where={"id": 1}, version=1)
    conflict = caught.value
    assert (conflict.current, conflict.version, conflict.gone, conflict.expected) == (None, None, False, 1)
    assert orders(pair.other)[0] == (1, "paid", 2)


@pytest.mark.parametrize("pair", ["postgresql psycopg"], indirect=True)
def test_write_that_a_trigger_keeps_from_happening_is_not_taken_for_another_writer(pair: Pair) -> None:
    with pair.other.begin() as tx:
        pair.other.run(tx, "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
        pair.other.run(tx, "CREATE TRIGGER no BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION no()")
    with pytest.raises(VersionConflict, match="a trigger or policy"):
        write(pair.one, "paid", 1)
