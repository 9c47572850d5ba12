"""`fenced_update`: the fence in a column of the user's own table, over every kind of connection."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import aiosqlite
import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

import leasehold
from leasehold.errors import ConfigurationError, StaleFence
from leasehold.sql import fenced_update, fenced_update_async
from leasehold.sql.identifiers import MAX_BYTES
from tests.sql.desks import EVERY_DESK, fresh_schema, prepared_desk, sqlalchemy_url
from tests.waiting import two_in_turn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.sql.desks import Desk
    from verification.lab.postgres import PostgresServer

HOSTILE = [
    "a'b",
    'a"b',
    "a;DROP TABLE t",
    "a\\",
    "a\\:b",
    "%s %(fence)s",
    "100%",
    ":fence",
    "a::b",
    "? $1",
    "a\nb",
]


@pytest.fixture(params=EVERY_DESK)
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    with prepared_desk(
        request,
        tmp_path,
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT, fence BIGINT NOT NULL DEFAULT 0)",
        "INSERT INTO orders (id, state) VALUES (1, 'new'), (2, 'new')",
    ) as desk:
        yield desk


def update(desk: Desk, lease: leasehold.Lease | int, state: str, order: int = 1) -> bool:
    with desk.begin() as tx:
        return fenced_update(tx, lease, "orders", {"state": state}, where={"id": order})


def orders(desk: Desk) -> list[tuple[Any, ...]]:
    with desk.begin() as tx:
        return desk.run(tx, "SELECT id, state, fence FROM orders ORDER BY id")


def test_late_writer_of_a_row_is_refused(desk: Desk, client: leasehold.Client) -> None:
    stale, current = two_in_turn(client.lock("order:1"))
    assert update(desk, current, "paid")
    assert update(desk, current, "sent")
    with pytest.raises(StaleFence) as caught:
        update(desk, stale, "lost")
    assert (caught.value.fence, caught.value.highest, caught.value.name) == (stale.fence, current.fence, "order:1")
    assert update(desk, current.fence, "done")
    assert orders(desk) == [(1, "done", current.fence), (2, "new", 0)]


def test_row_that_is_not_there_is_told_apart_from_a_stale_fence(desk: Desk) -> None:
    assert update(desk, 5, "paid", order=3) is False


def test_fence_alone_is_raised_before_a_read(desk: Desk, client: leasehold.Client) -> None:
    stale, current = two_in_turn(client.lock("order:1"))
    with desk.begin() as tx:
        assert fenced_update(tx, current, "orders", {}, where={"id": 1})
        assert desk.run(tx, "SELECT state FROM orders WHERE id = 1") == [("new",)]
    with pytest.raises(StaleFence):
        update(desk, stale, "lost")


def test_condition_that_fits_several_rows_is_refused(desk: Desk) -> None:
    with pytest.raises(ConfigurationError, match="fits 2 rows"), desk.begin() as tx:
        fenced_update(tx, 5, "orders", {"state": "all"}, where={"state": "new"})
    assert [state for _, state, _ in orders(desk)] == ["new", "new"]


def test_write_that_changes_no_value_is_no_refusal(desk: Desk) -> None:
    """MySQL counts rows that were changed, and not those that were found."""
    for _ in range(2):
        assert update(desk, 5, "paid")
    with desk.begin() as tx:
        assert fenced_update(tx, 5, "orders", {}, where={"id": 1})


def test_names_and_values_are_never_read_as_sql(desk: Desk, request: pytest.FixtureRequest) -> None:
    mark = "`" if "mysql" in request.node.name else '"'
    names = [*HOSTILE, "a`b", "Aä😀"] if mark == '"' else [*HOSTILE, "a`b", "Aä"]  # MySQL has no such letters in names
    for name in names:
        quoted = mark + name.replace(mark, mark * 2) + mark
        with desk.begin() as tx:
            made = f"CREATE TABLE {quoted} ({quoted} TEXT, id VARCHAR(40) PRIMARY KEY, fence BIGINT NOT NULL)"
            escaped = made.replace(":", r"\:") if "sqlalchemy" in type(tx).__module__ else made
            desk.run(tx, escaped)
        with desk.begin() as tx:
            insert = f"INSERT INTO {quoted} VALUES ('', 'one', 0)"
            desk.run(tx, insert.replace(":", r"\:") if "sqlalchemy" in type(tx).__module__ else insert)
            assert fenced_update(tx, 5, name, {"id": name}, where={"id": "one"})
            assert fenced_update(tx, 5, name, {name: name}, where={"id": name})
            assert fenced_update(tx, 5, name, {name: "x"}, where={name: name, "id": name})
            assert not fenced_update(tx, 5, name, {name: "x"}, where={name: name, "id": name})
            with pytest.raises(StaleFence):
                fenced_update(tx, 4, name, {name: "y"}, where={"id": name})
    assert len(orders(desk)) == 2


@pytest.mark.parametrize(
    ("table", "values", "where"),
    [
        ("", {"state": "x"}, {"id": 1}),
        ("a\0b", {"state": "x"}, {"id": 1}),
        ("t" * (MAX_BYTES + 1), {"state": "x"}, {"id": 1}),
        ("orders", {"": "x"}, {"id": 1}),
        ("orders", {"state": "x"}, {}),
        ("orders", {"fence": 7}, {"id": 1}),
        ("orders", {"state": "x"}, {"fence": 0}),
    ],
)
def test_what_cannot_be_meant_is_refused(
    tmp_path: Path, table: str, values: dict[str, object], where: dict[str, object]
) -> None:
    with closing(sqlite3.connect(tmp_path / "data.db")) as connection, pytest.raises(ConfigurationError):
        fenced_update(connection, 5, table, values, where=where)


def test_misspelt_column_is_an_error_and_no_text(tmp_path: Path) -> None:
    """SQLite takes an unknown name in double quotes for a text, unless it is qualified."""
    with closing(sqlite3.connect(tmp_path / "data.db")) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER, state TEXT, fence INTEGER)")
        for column, key in (("fense", "id"), ("fence", "idd")):
            with pytest.raises(sqlite3.OperationalError, match="no such column"):
                fenced_update(connection, 5, "orders", {"state": "x"}, where={key: 1}, column=column)


def test_lease_that_is_shared_does_not_write(tmp_path: Path, client: leasehold.Client) -> None:
    with client.rwlock("orders").read.hold() as lease, closing(sqlite3.connect(tmp_path / "data.db")) as connection:
        with pytest.raises(ConfigurationError, match="shared"):
            fenced_update(connection, lease, "orders", {}, where={"id": 1})


def test_schema_is_named_apart_and_the_async_twin_does_the_same(postgres: PostgresServer) -> None:
    url = fresh_schema(postgres)
    schema = url.rpartition("%3D")[2]
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE orders (id integer, state text, fence bigint)")
        connection.execute("INSERT INTO orders VALUES (1, 'new', 0)")

    async def main() -> None:
        engine = create_async_engine(sqlalchemy_url(url))
        async with await psycopg.AsyncConnection.connect(postgres.url(schema)) as connection:
            assert await fenced_update_async(connection, 6, (schema, "orders"), {"state": "a"}, where={"id": 1})
            with pytest.raises(ConfigurationError, match="await"):
                fenced_update(connection, 6, (schema, "orders"), {}, where={"id": 1})
        async with engine.begin() as tx:
            assert await fenced_update_async(tx, 7, "orders", {"state": "b"}, where={"id": 1})
            with pytest.raises(StaleFence):
                await fenced_update_async(tx, 6, "orders", {"state": "c"}, where={"id": 1})
            assert (await tx.execute(text("SELECT state, fence FROM orders"))).all() == [("b", 7)]
        await engine.dispose()

    asyncio.run(main())


@pytest.mark.parametrize("face", ["def", "async def"])
def test_a_store_that_has_gone_back_gives_a_higher_fence_after_a_row_has_refused_it(tmp_path: Path, face: str) -> None:
    async def refused_async(lease: leasehold.Lease) -> None:
        async with aiosqlite.connect(tmp_path / "data.db") as tx:
            await fenced_update_async(tx, lease, "orders", {}, where={"id": 1})

    with closing(sqlite3.connect(tmp_path / "data.db")) as database, leasehold.connect("memory://") as client:
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, fence BIGINT NOT NULL)")
        database.execute("INSERT INTO orders VALUES (1, 5000)")
        database.commit()
        with client.lock("orders").hold() as lease, pytest.raises(StaleFence):
            if face == "def":
                fenced_update(database, lease, "orders", {}, where={"id": 1})
            else:
                asyncio.run(refused_async(lease))
        with client.lock("orders").hold() as lease:
            assert lease.fence > 5000
            assert fenced_update(database, lease, "orders", {}, where={"id": 1})
