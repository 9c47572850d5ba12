"""Where a worker of a queue gets its transactions: what is opened, ended and let go."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._runtimes.threads import run
from leasehold.errors import ConfigurationError
from leasehold.sql.queue import transactions as module
from leasehold.sql.queue.transactions import open_source
from leasehold.sql.wires import Transaction

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

from tests.unit.queue_bench import Face
from tests.unit.scripted_wire import ScriptedWire


async def through(source: Any, error: BaseException | None = None) -> None:
    async with source.begin() as tx:
        tx.execute("INSERT INTO t VALUES (1)")
        if error is not None:
            raise error


@pytest.fixture
def face(tmp_path: Path) -> Face:
    with closing(sqlite3.connect(tmp_path / "queue.db")) as file:
        file.execute("CREATE TABLE t (n INTEGER)")
    return Face(tmp_path, print)


def test_connection_of_a_source_serves_one_transaction_after_the_other_until_an_error(face: Face) -> None:
    source = face.transactions()
    for _ in range(2):
        run(through(source))
    assert face.notes == ["open", "commit", "commit"]
    with pytest.raises(KeyError):
        run(through(source, KeyError("x")))
    assert face.notes[3:] == ["rollback", "close"]
    run(through(source))
    run(source.close())
    run(source.close())
    assert face.notes[5:] == ["open", "commit", "close"]


def test_connection_that_cannot_even_be_closed_does_not_hide_the_error_before(face: Face) -> None:
    closed: list[bool] = []

    class Broken(sqlite3.Connection):
        def close(self) -> None:
            super().close()
            closed.append(True)
            raise OSError("the server went away")

    source = open_source(lambda: sqlite3.connect(face._path / "queue.db", factory=Broken), is_async=False)
    with pytest.raises(KeyError):
        run(through(source, KeyError("x")))
    run(through(source))
    run(source.close())
    assert closed == [True, True]


def test_nothing_is_sent_over_a_connection_whose_task_is_cancelled(face: Face) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(through(face.transactions(), KeyboardInterrupt()))
    assert face.notes == ["open", "close"]


def test_connection_in_autocommit_gets_its_transaction_by_statements(face: Face) -> None:
    asked: list[str] = []

    def connect() -> sqlite3.Connection:
        connection = face.connect()
        connection.isolation_level = None
        connection.set_trace_callback(asked.append)
        return connection

    source = open_source(connect, is_async=False)
    run(through(source))
    with pytest.raises(KeyError):
        run(through(source, KeyError("x")))
    insert = "INSERT INTO t VALUES (1)"
    assert asked == ["BEGIN IMMEDIATE", insert, "COMMIT", "BEGIN IMMEDIATE", insert, "ROLLBACK"]
    assert face.notes == ["open", "close"]


def test_connection_from_a_pool_goes_back_after_every_transaction(face: Face) -> None:
    class Engine:
        dialect = begin = connect = None

    engine: Any = Engine()
    engine.connect = face.connect
    source = open_source(engine, is_async=False)
    run(through(source))
    run(through(source))
    assert face.notes == ["open", "commit", "close"] * 2
    with pytest.raises(ConfigurationError, match="run_async"):
        open_source(engine, is_async=True)


def test_plain_connection_is_committed_and_let_go_also_after_an_error(face: Face) -> None:
    async def plain(source: Any, error: Exception | None = None) -> None:
        async with source.plain() as connection:
            connection.execute("INSERT INTO t VALUES (1)")
            if error is not None:
                raise error

    source = face.transactions()
    run(plain(source))
    with pytest.raises(KeyError):
        run(plain(source, KeyError("x")))
    assert face.notes == ["open", "commit", "close", "open", "close"]


def test_block_is_entered_and_left_and_its_transaction_is_its_own(face: Face) -> None:
    @contextmanager
    def block() -> Iterator[sqlite3.Connection]:
        with closing(face.connect()) as connection, connection:
            yield connection

    source = open_source(block, is_async=False)
    run(through(source))
    with pytest.raises(KeyError):
        run(through(source, KeyError("x")))
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
        run(through(open_source(lambda: made, is_async=False)))
    assert made.closed
    with pytest.raises(ConfigurationError, match="an int, which is no connection and no block"):
        run(through(open_source(lambda: 7, is_async=False)))
    with pytest.raises(ConfigurationError, match=r"Django database is used with run\(\)"):
        open_source("default", is_async=True)
    for nothing in (7, sqlite3.connect(":memory:")):
        with pytest.raises(ConfigurationError, match="can serve only one thread"):
            open_source(nothing, is_async=False)


OPEN, OPENS, AUTOCOMMIT = Transaction.OPEN, Transaction.OPENS, Transaction.AUTOCOMMIT
WITHOUT_GAPS = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"


@pytest.mark.parametrize(
    ("dialect", "state", "claims", "statements"),
    [
        ("mysql", AUTOCOMMIT, True, [WITHOUT_GAPS, "BEGIN", "work", "COMMIT"]),
        ("mysql", AUTOCOMMIT, False, ["BEGIN", "work", "COMMIT"]),
        ("mysql", OPENS, True, [WITHOUT_GAPS, "work"]),
        ("mysql", OPENS, False, ["work"]),
        ("mysql", OPEN, True, ["work"]),
        ("postgresql", AUTOCOMMIT, True, ["BEGIN", "work", "COMMIT"]),
        ("postgresql", OPENS, True, ["work"]),
        ("sqlite", AUTOCOMMIT, True, ["BEGIN IMMEDIATE", "work", "COMMIT"]),
        ("sqlite", OPENS, True, ["work"]),
    ],
)
def test_only_claims_in_mysql_change_the_level_of_isolation_and_only_before_they_begin(
    monkeypatch: pytest.MonkeyPatch, dialect: str, state: Transaction, claims: bool, statements: list[str]
) -> None:
    """The transaction of a handler has the level that the user's own connection has."""
    wire = ScriptedWire(dialect=dialect, state=state)
    ended: list[str] = []
    connection = SimpleNamespace(commit=lambda: ended.append("commit"), close=lambda: None)

    async def over_the_wire(_: Any, work: Any) -> Any:
        return await work(wire)

    async def once() -> None:
        async with open_source(lambda: connection, is_async=False).begin(claims=claims):
            await wire.query("work", {})

    monkeypatch.setattr(module, "call_either", over_the_wire)
    run(once())
    assert wire.statements == statements
    assert ended == ([] if state is AUTOCOMMIT else ["commit"])
