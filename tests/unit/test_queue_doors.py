"""Where a worker of a queue gets its transactions: what is opened, ended and let go."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._runtimes.threads import run
from leasehold.errors import ConfigurationError
from leasehold.sql.queue.doors import open_door

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

from tests.unit.queue_bench import Face


async def through(door: Any, error: BaseException | None = None) -> None:
    async with door.begin() as tx:
        tx.execute("INSERT INTO t VALUES (1)")
        if error is not None:
            raise error


@pytest.fixture
def face(tmp_path: Path) -> Face:
    with closing(sqlite3.connect(tmp_path / "queue.db")) as file:
        file.execute("CREATE TABLE t (n INTEGER)")
    return Face(tmp_path, print)


def test_connection_of_a_door_serves_one_transaction_after_the_other_until_an_error(face: Face) -> None:
    door = face.door()
    for _ in range(2):
        run(through(door))
    assert face.notes == ["open", "commit", "commit"]
    with pytest.raises(KeyError):
        run(through(door, KeyError("x")))
    assert face.notes[3:] == ["rollback", "close"]
    run(through(door))
    run(door.close())
    run(door.close())
    assert face.notes[5:] == ["open", "commit", "close"]


def test_nothing_is_sent_over_a_connection_whose_task_is_cancelled(face: Face) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(through(face.door(), KeyboardInterrupt()))
    assert face.notes == ["open", "close"]


def test_connection_in_autocommit_gets_its_transaction_by_statements(face: Face) -> None:
    asked: list[str] = []

    def connect() -> sqlite3.Connection:
        connection = face.connect()
        connection.isolation_level = None
        connection.set_trace_callback(asked.append)
        return connection

    door = open_door(connect, is_async=False)
    run(through(door))
    with pytest.raises(KeyError):
        run(through(door, KeyError("x")))
    insert = "INSERT INTO t VALUES (1)"
    assert asked == ["BEGIN IMMEDIATE", insert, "COMMIT", "BEGIN IMMEDIATE", insert, "ROLLBACK"]
    assert face.notes == ["open", "close"]


def test_connection_from_a_pool_goes_back_after_every_transaction(face: Face) -> None:
    class Engine:
        dialect = begin = connect = None

    engine: Any = Engine()
    engine.connect = face.connect
    door = open_door(engine, is_async=False)
    run(through(door))
    run(through(door))
    assert face.notes == ["open", "commit", "close"] * 2
    with pytest.raises(ConfigurationError, match="run_async"):
        open_door(engine, is_async=True)


def test_plain_connection_is_committed_and_let_go_also_after_an_error(face: Face) -> None:
    async def plain(door: Any, error: Exception | None = None) -> None:
        async with door.plain() as connection:
            connection.execute("INSERT INTO t VALUES (1)")
            if error is not None:
                raise error

    door = face.door()
    run(plain(door))
    with pytest.raises(KeyError):
        run(plain(door, KeyError("x")))
    assert face.notes == ["open", "commit", "close", "open", "close"]


def test_block_is_entered_and_left_and_its_transaction_is_its_own(face: Face) -> None:
    @contextmanager
    def block() -> Iterator[sqlite3.Connection]:
        with closing(face.connect()) as connection, connection:
            yield connection

    door = open_door(block, is_async=False)
    run(through(door))
    with pytest.raises(KeyError):
        run(through(door, KeyError("x")))
    assert face.notes == ["open", "close"] * 2  # `with connection` commits without a call that can be noted
    with closing(face.connect()) as look:
        assert look.execute("SELECT count(*) FROM t").fetchone() == (1,)


def test_what_is_no_source_of_transactions_is_refused() -> None:
    class Awaitable:
        closed = False

        def __await__(self) -> Any:
            yield

        def close(self) -> None:
            self.closed = True

    made = Awaitable()
    with pytest.raises(ConfigurationError, match=r"for this one use run_async\(\)"):
        run(through(open_door(lambda: made, is_async=False)))
    assert made.closed
    with pytest.raises(ConfigurationError, match="an int, which is no connection and no block"):
        run(through(open_door(lambda: 7, is_async=False)))
    with pytest.raises(ConfigurationError, match=r"Django database is used with run\(\)"):
        open_door("default", is_async=True)
    for nothing in (7, sqlite3.connect(":memory:")):
        with pytest.raises(ConfigurationError, match="can serve only one thread"):
            open_door(nothing, is_async=False)
