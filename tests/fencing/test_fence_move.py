"""`leasehold fence move`: a guarded table goes on taking writes after the locks have moved to another store."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sqlite3
import uuid
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest

import leasehold
from leasehold.cli.main import main
from leasehold.errors import FenceAhead, StaleFence
from leasehold.sql import guard
from tests.forms import sized
from tests.processes.asked import Asked
from tests.servers.mariadb import fresh_mariadb
from tests.sql.desks import fresh_schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAIRS = [
    ("sqlite", "redis"),
    ("redis", "etcd"),
    ("redis", "zookeeper"),
    ("etcd", "postgresql"),
    ("zookeeper", "sqlite"),
]
LONG_PAIRS = [("sqlite", "nats"), ("nats", "etcd"), ("mysql", "zookeeper"), ("redlock", "etcd"), ("etcd", "redlock"),
              ("zookeeper", "mysql")]  # fmt: skip


class Stores:
    """A fresh corner of each store, by its name; a server is started when it is first named."""

    def __init__(self, folder: Path, request: pytest.FixtureRequest) -> None:
        self._folder = folder
        self._request = request
        self.namespace = f"move-{uuid.uuid4().hex[:8]}"

    def url(self, store: str) -> str:
        if store == "sqlite":
            return f"sqlite:///{self._folder}/{store}.db"
        if store == "postgresql":
            return self.database()
        if store == "mysql":
            return fresh_mariadb(self._request.getfixturevalue("mariadb"))
        if store in ("zookeeper", "redlock"):
            server = self._request.getfixturevalue({"zookeeper": "zookeeper_server", "redlock": "redlock_nodes"}[store])
            return str(server.url(f"/{self.namespace}") if store == "zookeeper" else server.url())
        return str(self._request.getfixturevalue(f"{store}_server").url)

    def database(self) -> str:
        """The url of a PostgreSQL database for data."""
        return fresh_schema(self._request.getfixturevalue("postgres"))

    def forget_all(self) -> None:
        """Let Redis forget everything."""
        self._request.getfixturevalue("redis_server").flush()

    def connect(self, url: str) -> leasehold.Client:
        return leasehold.connect(url, namespace=self.namespace, ttl=5)


@pytest.fixture
def stores(tmp_path: Path, request: pytest.FixtureRequest) -> Stores:
    return Stores(tmp_path, request)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "data.db")) as connection:
        connection.execute("CREATE TABLE stock (n INTEGER)")
        connection.execute("INSERT INTO stock VALUES (0)")
        connection.commit()
        yield connection


def add_one(table: sqlite3.Connection, lease: leasehold.Lease) -> None:
    """One guarded write, as a program makes it."""
    with table:
        guard(table, lease)
        table.execute("UPDATE stock SET n = n + 1")


def write_under(client: leasehold.Client, table: sqlite3.Connection, name: str = "stock") -> leasehold.Lease:
    with client.lock(name).hold(timeout=30) as lease:
        add_one(table, lease)
    return lease


@pytest.mark.parametrize(("old", "new"), [*PAIRS, *sized([], LONG_PAIRS)])
def test_guarded_table_takes_the_writes_of_the_new_store_after_a_move(
    stores: Stores, table: sqlite3.Connection, old: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    urls = stores.url(old), stores.url(new)
    with stores.connect(urls[0]) as before, stores.connect(urls[1]) as after:
        late = write_under(before, table)
        with after.lock("another").hold(timeout=30):
            pass  # the store exists
        if new in ("etcd", "zookeeper"):
            with pytest.raises(FenceAhead):
                write_under(after, table)
        words = ["fence", "move", "stock", "--from", urls[0], "--to", urls[1], "--namespace", stores.namespace]
        assert main([*words, "--yes", "--json"]) == 0, capsys.readouterr().err
        moved = json.loads(capsys.readouterr().out)
        assert moved["name"] == "stock"
        assert late.fence <= moved["given"] <= moved["fence"]
        assert write_under(after, table).fence > moved["fence"] - 1
        with pytest.raises(StaleFence):
            add_one(table, late)
    assert table.execute("SELECT n FROM stock").fetchone() == (2,)


def test_all_names_of_a_namespace_move_at_once_to_a_store_with_one_floor(
    stores: Stores, table: sqlite3.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    urls = stores.url("sqlite"), stores.url("etcd")
    with stores.connect(urls[0]) as before, stores.connect(urls[1]) as after:
        for name in ("order:1", "order:2"):
            write_under(before, table, name)
        words = ["fence", "move", "--all", "--from", urls[0], "--to", urls[1], "--namespace", stores.namespace, "--yes"]
        assert main(words) == 0
        assert "all names: sqlite:" in capsys.readouterr().out
        for name in ("order:1", "order:2"):
            write_under(after, table, name)
        assert main(words) == 0  # a second time there is nothing to raise


def test_store_that_follows_the_clock_needs_no_move_of_all_names(
    stores: Stores, capsys: pytest.CaptureFixture[str]
) -> None:
    urls = stores.url("sqlite"), stores.url("redis")
    with stores.connect(urls[0]) as before, before.lock("stock").hold():
        pass
    words = ["fence", "move", "--all", "--from", urls[0], "--to", urls[1], "--namespace", stores.namespace, "--yes"]
    assert main([*words, "--json"]) == 0
    moved = json.loads(capsys.readouterr().out)
    assert moved["fence"] > moved["given"]


def test_store_that_counts_each_name_and_is_behind_does_not_take_all_names(
    stores: Stores, capsys: pytest.CaptureFixture[str]
) -> None:
    urls = stores.url("etcd"), stores.url("redis")
    with stores.connect(urls[0]) as before:
        ahead = before.raise_fence("stock", 2**52, reason="test")
    words = ["fence", "move", "--all", "--from", urls[0], "--to", urls[1], "--namespace", stores.namespace, "--yes"]
    assert main(words) == 78
    message = capsys.readouterr().err
    assert "name the locks to move" in message
    floor = re.search(r"fence_floor=(\d+)", message)
    assert floor is not None
    assert int(floor[1]) > ahead


@pytest.mark.parametrize("which", ["stock", "--all"])
@pytest.mark.parametrize("is_dry", [False, True])
def test_name_that_is_held_at_the_old_store_is_not_moved(
    stores: Stores, tmp_path: Path, capsys: pytest.CaptureFixture[str], which: str, is_dry: bool
) -> None:
    urls = stores.url("sqlite"), f"sqlite:///{tmp_path}/new.db"
    with stores.connect(urls[0]) as before, stores.connect(urls[1]) as after, before.lock("stock").hold() as lease:
        first = after.highest_fence("stock")
        words = ["fence", "move", which, "--from", urls[0], "--to", urls[1], "--namespace", stores.namespace]
        assert main([*words, "--dry-run" if is_dry else "--yes"]) == 75
        message = capsys.readouterr().err
        assert "'stock' is in use at sqlite:" in message
        assert f"fence {lease.fence}; nothing was changed" in message
        with after.lock("stock").hold() as later:
            assert later.fence > first


def test_dry_run_changes_nothing(stores: Stores, table: sqlite3.Connection, capsys: pytest.CaptureFixture[str]) -> None:
    urls = stores.url("sqlite"), stores.url("etcd")
    with stores.connect(urls[0]) as before, stores.connect(urls[1]) as after:
        write_under(before, table)
        words = ["fence", "move", "stock", "--from", urls[0], "--to", urls[1], "--namespace", stores.namespace]
        assert main([*words, "--dry-run"]) == 0
        assert "nothing is in the way: the fences of 'stock' at etcd:" in capsys.readouterr().out
        with pytest.raises(FenceAhead):
            write_under(after, table)
        assert main(words) == 64  # no terminal, and no --yes
        with pytest.raises(FenceAhead):
            write_under(after, table)


@pytest.mark.parametrize(("answer", "code"), [("no", 1), ("yes", 75)])
def test_name_that_is_taken_while_the_operator_thinks_is_reported(
    stores: Stores, tmp_path: Path, answer: str, code: int
) -> None:
    urls = stores.url("sqlite"), f"sqlite:///{tmp_path}/new.db"
    with stores.connect(urls[0]) as before, stores.connect(urls[1]) as after:
        before.raise_fence("stock", 2**52, reason="test")
        with after.lock("stock").hold() as first:
            pass
        words = ["fence", "move", "stock", "--from", urls[0], "--to", urls[1], "--namespace", stores.namespace]
        asked = Asked(tmp_path, *words)
        try:
            asked.expect("No fence can be lowered again. Type yes: ")
            with before.lock("stock").hold():
                asked.type(f"{answer}\n")
                ended, text = asked.end()
        finally:
            asked.close()
        assert ended == code, text
        assert ("it was taken meanwhile" in text) == (code == 75)
        assert ("nothing was changed" in text) == (code == 1)
        assert (after.highest_fence("stock") >= 2**52) == (code == 75)
        assert first.fence < 2**52


def test_name_that_is_paused_at_the_old_store_can_be_moved(stores: Stores, tmp_path: Path) -> None:
    urls = stores.url("sqlite"), f"sqlite:///{tmp_path}/new.db"
    with stores.connect(urls[0]) as before, stores.connect(urls[1]) as after:
        high = before.raise_fence("stock", 2**52, reason="test")
        before.pause("stock", reason="it moves")
        with after.lock("another").hold():
            pass
        words = ["fence", "move", "stock", "--from", urls[0], "--to", urls[1], "--namespace", stores.namespace, "--yes"]
        assert main(words) == 0
        with after.lock("stock").hold() as lease:
            assert lease.fence > high


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["stock"], "move needs --from URL"),
        (["--from", "local:", "--to", "redis://h"], "say which locks"),
        (["stock", "--all", "--from", "local:", "--to", "redis://h"], "say which locks"),
        (["stock", "--from", "local:", "--to", "local:"], "the same store"),
        (["stock", "--from", "local:", "--to", "redis://h", "--url", "local:"], "not from --url"),
    ],
)
def test_wrong_words_are_refused(words: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fence", "move", *words]) == 64
    assert problem in capsys.readouterr().err


def test_store_that_no_other_process_shares_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = f"sqlite:///{tmp_path}/locks.db"
    with leasehold.connect(there) as client, client.lock("x").hold():
        pass
    assert main(["fence", "move", "x", "--from", "memory://a", "--to", there, "--yes"]) == 78
    assert main(["fence", "move", "x", "--from", f"{there}.typo", "--to", there, "--yes"]) == 78
    assert "does not exist; nothing was changed" in capsys.readouterr().err


def test_message_of_a_fence_far_ahead_has_the_command_that_heals_it(
    stores: Stores, capsys: pytest.CaptureFixture[str]
) -> None:
    """On PostgreSQL, with a name and a namespace that a shell would take apart."""
    namespace = "a:b's"
    with (
        psycopg.connect(stores.database()) as table,
        leasehold.connect(stores.url("etcd"), namespace=namespace) as client,
    ):
        guard(table, 2**50, resource="a%3Ab's:the stock")
        table.commit()
        with client.lock("the stock").hold() as lease, pytest.raises(FenceAhead) as caught:
            guard(table, lease)
        table.rollback()
        command = re.search(r"run: leasehold (.*)$", str(caught.value))
        assert command is not None
        assert main([*shlex.split(command[1]), "--yes"]) == 0, capsys.readouterr().err
        with client.lock("the stock").hold() as lease:
            guard(table, lease)


def test_highest_fence_is_known_although_the_store_has_forgotten_the_name(stores: Stores) -> None:
    """Stores forget idle names; then only the next grant of any name says how far they have counted."""
    with stores.connect(stores.url("redis")) as client:
        with client.lock("stock").hold() as lease:
            pass
        stores.forget_all()
        assert client.highest_fence("stock") >= lease.fence
        assert client.highest_fence() >= lease.fence
        assert client.raise_fence("stock", 2**52, reason="test") == client.highest_fence("stock") == 2**52


async def _highest(url: str) -> tuple[int, int]:
    async with leasehold.connect_async(url) as client:
        async with client.lock("stock").hold() as lease:
            pass
        return lease.fence, await client.highest_fence("stock")


def test_async_client_knows_the_highest_fence_too(tmp_path: Path) -> None:
    fence, highest = asyncio.run(_highest(f"sqlite:///{tmp_path}/locks.db"))
    assert highest >= fence
