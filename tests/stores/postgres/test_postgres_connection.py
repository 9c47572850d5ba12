"""One connection to PostgreSQL: prepared statements, what is left unread, what ended, notifications, sessions."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from leasehold._backends.postgres.connection import PREPARE_AT, Connection, open_connection
from leasehold._backends.postgres.maintenance import CLEAN_EVERY, CLEAN_PAUSE, CLEAN_SLICE, Cleaning
from leasehold._backends.postgres.statements import TEXT, Statement, Statements
from leasehold._backends.postgres.wire import wire_for
from leasehold._runtimes.asyncio import AsyncioRuntime
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.errors import BackendUnavailable, OutcomeUnknown
from leasehold.values import Claim, Grant, Holder, Mode
from tests.unit.planned_waits import PlannedWaits
from tests.waiting import LIMIT, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from verification.lab.postgres import PostgresServer

HOT = Statement(b"hot", b"SELECT $1", (TEXT,), (0,), hot=True)
COLD = Statement(b"cold", b"SELECT $1", (TEXT,), (0,))
PREPARED = Statement(b"", b"SELECT name FROM pg_prepared_statements", (), ())
LABEL = "postgresql://h/db"


@pytest.fixture
def connect(postgres: PostgresServer) -> Iterator[Callable[[], Connection]]:
    """Makes connections to the server, which end with the test."""
    runtime, made = ThreadRuntime(), []

    def connect() -> Connection:
        parameters: dict[str, object] = {"conninfo": postgres.url()}
        made.append(run(open_connection(wire_for(runtime), parameters, runtime, LABEL, LIMIT)))
        return made[-1]

    yield connect
    for each in made:
        each.close()


def ask(connection: Connection, statement: Statement, *values: bytes) -> Any:
    return run(connection.execute(statement, values))


def prepared(connection: Connection) -> list[Any]:
    rows = ask(connection, PREPARED)
    return [rows.get_value(row, 0) for row in range(rows.ntuples)]


def test_a_statement_that_is_used_often_is_prepared_where_the_session_is_our_own(
    connect: Callable[[], Connection],
) -> None:
    line = connect()
    line.facts.is_direct = True
    for number in range(1, PREPARE_AT + 2):
        for statement in (HOT, COLD):
            assert ask(line, statement, b"%d" % number).get_value(0, 0) == b"%d" % number
        assert prepared(line) == ([b"hot"] if number >= PREPARE_AT else [])
    pooled = connect()
    for _ in range(PREPARE_AT + 1):
        ask(pooled, HOT, b"x")
    assert prepared(pooled) == []


def test_what_is_known_of_a_session_outlives_the_object_of_one_call(connect: Callable[[], Connection]) -> None:
    line = connect()
    line.facts.is_direct = True
    for _ in range(PREPARE_AT):
        ask(line.view(), HOT, b"x")
    assert prepared(line) == [b"hot"]
    line.view().forget_prepared()
    assert not line.is_direct


def test_a_statement_that_cannot_be_prepared_is_sent_as_it_is(connect: Callable[[], Connection]) -> None:
    line = connect()
    line.facts.is_direct = True
    run(line.run_script(b"PREPARE hot AS SELECT 1"))  # somebody has taken its name
    for number in range(PREPARE_AT + 1):
        assert ask(line, HOT, b"%d" % number).get_value(0, 0) == b"%d" % number
    assert not line.is_direct
    assert line.facts.prepared == set()


def test_a_script_is_answered_by_its_last_statement_or_its_error(connect: Callable[[], Connection]) -> None:
    line = connect()
    assert run(line.run_script(b"SELECT 1; SELECT 2")).get_value(0, 0) == b"2"
    refused = run(line.run_script(b"SELECT 1; SELECT 1/0; SELECT 2"))
    assert refused.error_field(ord("C")) == b"22012"
    assert line.is_usable()


@pytest.mark.parametrize("uses", [0, PREPARE_AT], ids=["sent as it is", "prepared"])
def test_a_call_ends_with_its_time_and_leaves_its_answer_for_the_next_one_to_read(
    connect: Callable[[], Connection], uses: int
) -> None:
    line, nap = connect(), Statement(b"nap", b"SELECT pg_sleep(0.05)", (), (), hot=True)
    line.facts.is_direct = True
    for _ in range(uses):
        ask(line, nap)
    assert line.facts.prepared == ({b"nap"} if uses else set())
    with pytest.raises(OutcomeUnknown, match="no answer in time"):
        run(line.execute(nap, (), 0.0))
    assert line.is_owed()
    assert not line.is_usable()
    with pytest.raises(BackendUnavailable, match="no answer in time"):
        run(line.recovers(0.0))
    assert not line.is_broken()
    assert run(line.recovers()) is True
    assert not line.is_owed()
    assert ask(line, COLD, b"mine").get_value(0, 0) == b"mine"


def test_the_answer_timeout_counts_where_nothing_else_is_said(connect: Callable[[], Connection]) -> None:
    line = connect()
    line._timeout = 0.0
    with pytest.raises(OutcomeUnknown, match="no answer in time"):
        ask(line, Statement(b"", b"SELECT pg_sleep(60)", (), ()))


def test_a_connection_that_the_server_has_ended_is_not_usable(
    postgres: PostgresServer, connect: Callable[[], Connection]
) -> None:
    idle, owing = connect(), connect()
    with pytest.raises(OutcomeUnknown):
        run(owing.execute(Statement(b"", b"SELECT pg_sleep(60)", (), ()), (), 0.0))
    for line in (idle, owing):
        assert line.pgconn.backend_pid
        postgres.run(f"SELECT pg_terminate_backend({line.pgconn.backend_pid})")
    eventually(lambda: not idle.is_usable())
    assert run(idle.recovers()) is False
    assert run(owing.recovers()) is False
    with pytest.raises(OutcomeUnknown):
        ask(idle, COLD, b"x")
    assert idle.is_broken()


def test_a_notification_makes_no_connection_unusable(connect: Callable[[], Connection]) -> None:
    line, other = connect(), connect()
    run(line.listen(b"bell"))
    run(other.run_script(b"NOTIFY bell, 'one'; NOTIFY bell, 'two'"))
    assert run(line.notified(LIMIT)) is True
    assert line.is_usable()
    assert run(line.notified(0.0)) is False
    run(other.run_script(b"NOTIFY bell, 'three'"))
    run(other.run_script(b"NOTIFY bell, 'four'"))
    got: list[str] = []
    while len(got) < 2 and run(line.notified(LIMIT)):
        got += line.notifications()
    assert got == ["three", "four"]


def test_a_listener_that_cannot_listen_or_has_ended_says_so(
    postgres: PostgresServer, connect: Callable[[], Connection]
) -> None:
    line = connect()
    with pytest.raises(Exception, match="syntax error"):
        run(line.listen(b"no name"))
    postgres.run(f"SELECT pg_terminate_backend({line.pgconn.backend_pid})")
    with pytest.raises(BackendUnavailable, match="that listened has ended"):
        while run(line.notified(LIMIT)):  # at first there is the server's last word
            line.notifications()
    line.close()
    with pytest.raises(BackendUnavailable, match="that listened has ended"):
        line.notifications()


def test_a_wait_is_interrupted_from_another_thread(connect: Callable[[], Connection]) -> None:
    line, ended = connect(), []

    def wait() -> None:
        try:
            ask(line, Statement(b"", b"SELECT pg_sleep(60)", (), ()))
        except OutcomeUnknown as error:
            ended.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(line.is_owed)
    line.interrupt()
    thread.join(LIMIT)
    assert len(ended) == 1


def test_where_the_system_has_no_poll_waits_are_the_same(
    connect: Callable[[], Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("select.poll")
    line = connect()
    assert ask(line, COLD, b"x" * 1_000_000).get_value(0, 0) == b"x" * 1_000_000
    assert line.is_usable()
    with pytest.raises(OutcomeUnknown, match="no answer in time"):
        run(line.execute(Statement(b"", b"SELECT pg_sleep(0.01)", (), ()), (), 0.0))
    assert run(line.recovers()) is True
    assert run(line._wire.watch(line, 0.0)) is False


@pytest.mark.parametrize("blocking", [True, False])
def test_a_watcher_sees_what_comes_and_the_end(connect: Callable[[], Connection], blocking: bool) -> None:
    line, other = connect(), connect()
    run(line.listen(b"bell"))
    wire = wire_for(ThreadRuntime() if blocking else AsyncioRuntime())

    def watches(seconds: float) -> bool:
        import asyncio

        return run(wire.watch(line, seconds)) if blocking else asyncio.run(wire.watch(line, seconds))

    assert watches(0.0) is False
    run(other.run_script(b"NOTIFY bell"))
    assert watches(LIMIT) is True
    line.close()
    assert watches(0.0) is True


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError(), "cannot be reached in time"),
        (OSError("no route"), "cannot be reached: no route"),
        (psycopg.OperationalError("refused"), "cannot be reached: refused"),
    ],
)
def test_a_server_that_cannot_be_reached_is_an_outage(error: Exception, words: str) -> None:
    async def connect(*_: object) -> None:
        raise error

    wire: Any = type("Wire", (), {"connect": staticmethod(connect)})()
    with pytest.raises(BackendUnavailable, match=words) as caught:
        run(open_connection(wire, {}, ThreadRuntime(), LABEL, 1.0))
    assert caught.value.backend == LABEL


# --- sessions


def test_the_session_of_a_client_is_known_by_a_lock_and_noticed_when_its_host_is_gone(database: str) -> None:
    backend: Any = find_store(f"{database}?mode=session").open_backend(ThreadRuntime())
    runtime = backend._runtime
    settings = Statement(
        b"",
        b"SELECT current_setting('leasehold.session'), current_setting('tcp_keepalives_idle'), "
        b"current_setting('tcp_keepalives_interval'), current_setting('tcp_keepalives_count'), "
        b"(SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks WHERE locktype = 'advisory' "
        b"AND pid = pg_backend_pid() AND mode = 'ExclusiveLock')",
        (),
        (),
    )

    async def story() -> None:
        claim = Claim("ns:x", runtime.owner(), 60.0, Mode.EXCLUSIVE, 1, 0.0, Holder("h", 1))
        assert isinstance(await backend.try_acquire(claim), Grant)
        rows = await backend._executor.execute(settings, ())
        number, *alive, lock = (rows.get_value(0, column) for column in range(5))
        assert alive == [b"10", b"5", b"3"]
        assert number == lock
        await backend.close()

    run(story())


@pytest.mark.parametrize("status", [7, 2])
def test_a_session_whose_lock_cannot_be_had_is_not_used(
    database: str, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """By chance, another one has its number."""
    refused = Statement(b"", b"SELECT 1/0" if status == 7 else b"SELECT $1 = 1 AND $2 = ''", (20, TEXT), (0, 0))
    backend: Any = find_store(f"{database}?mode=session").open_backend(ThreadRuntime())
    monkeypatch.setattr(backend._source._sql, "begin", refused)
    with pytest.raises(BackendUnavailable, match="could not take its advisory lock"):
        run(backend.inspect("ns:x"))
    run(backend.close())


# --- cleaning


def test_cleaning_is_due_now_and_then_and_not_by_all_clients_at_once() -> None:
    runtime: Any = PlannedWaits()
    runtime.random = lambda: 0.25
    cleaning = Cleaning(Statements("leasehold"), runtime)
    for seconds in (0.25 * CLEAN_EVERY, CLEAN_EVERY, CLEAN_EVERY):
        assert not cleaning.is_due()
        runtime.clock.advance(seconds - 1)
        assert not cleaning.is_due()
        runtime.clock.advance(1)
        assert cleaning.is_due()


def test_a_client_that_was_idle_for_long_makes_up_for_no_cleaning() -> None:
    runtime: Any = PlannedWaits()
    cleaning = Cleaning(Statements("leasehold"), runtime)
    runtime.clock.advance(20 * CLEAN_EVERY)
    assert [cleaning.is_due() for _ in range(3)] == [True, False, False]


def test_a_slice_is_cleaned_with_a_pause_before_the_next_one(database: str) -> None:
    backend: Any = find_store(database).open_backend(ThreadRuntime())
    sent: list[Any] = []

    class Line:
        async def execute(self, statement: Statement, values: Any) -> None:
            sent.append((statement.name, values))

    line: Any = Line()
    run(Cleaning(backend._sql, backend._runtime).run(line))
    assert sent == [(b"leasehold_clean", (b"%d" % CLEAN_SLICE, b"%r" % CLEAN_PAUSE))]
    run(backend.close())


def test_cleaning_goes_through_all_names_and_records_and_keeps_what_is_needed(database: str) -> None:
    backend: Any = find_store(database).open_backend(ThreadRuntime())
    runtime = backend._runtime
    claim = Claim("ns:held", runtime.owner(), 60.0, Mode.EXCLUSIVE, 1, 0.0, Holder("h", 1))
    run(backend.try_acquire(claim))
    with psycopg.connect(database, autocommit=True) as table:
        young = "leasehold.micros_3(now() - interval '23 h')"
        table.execute(
            "INSERT INTO leasehold.lock (key, fence, shape, expires) VALUES "
            f"('a old', 1, 0, NULL), ('b young', {young}, 0, NULL), ('c over', 1, 1, now() - interval '25 h'), "
            "('d just over', 1, 1, now() - interval '23 h'), ('e old', 2, 0, NULL)".encode()
        )
        table.execute(
            "INSERT INTO leasehold.record (key, value, fence, expires, fence_until) VALUES "
            "('a gone', '', 1, now() - interval '1 s', now() - interval '1 s'), "
            "('b lives', '', 1, now() + interval '1 h', now() - interval '1 s'), "
            "('c its fence', '', 1, now() - interval '1 s', now() + interval '1 h'), "
            "('d gone', '', 1, now() - interval '1 s', now() - interval '1 s')"
        )

        def cleaned(pause: float = 0.0) -> int:
            row = table.execute("SELECT leasehold.clean_3(2, %s)", (pause,)).fetchone()
            assert row is not None
            return int(row[0])

        removed = [cleaned()]
        assert cleaned(60.0) == 0, "another client has just cleaned"
        removed += [cleaned() for _ in range(5)]
        assert removed == [2, 2, 1, 0, 0, 0]
        names = table.execute("SELECT convert_from(key, 'UTF8') FROM leasehold.lock ORDER BY key").fetchall()
        assert names == [("b young",), ("d just over",), ("ns:held",)]
        records = table.execute("SELECT convert_from(key, 'UTF8') FROM leasehold.record ORDER BY key").fetchall()
        assert records == [("b lives",), ("c its fence",)]
        table.execute("INSERT INTO leasehold.lock (key, fence) VALUES ('a again', 1)")
        assert sum(cleaned() for _ in range(4)) == 1, "it starts again after the last name"
    run(backend.close())
