"""Queries of MySQL over a pool: what is sent again, what ends a connection, how a session is set up."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import pytest

import leasehold
from leasehold._backends.mysql import base
from leasehold._backends.mysql.base import LONGEST_KEY, RENEWED_AT_ONCE, BaseBackend
from leasehold._backends.mysql.options import parse
from leasehold._backends.mysql.packets import Answer, Result, ServerError
from leasehold._backends.mysql.pool import READ_COMMITTED, REPEATABLE_READ, WHO, Dialer, Executor
from leasehold._record import replace
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.errors import BackendRejected, BackendUnavailable, ClientClosed, ConfigurationError, OutcomeUnknown
from leasehold.kit.rules import TAKEN
from leasehold.store_url import StoreURL
from leasehold.testing.clock import ManualClock
from leasehold.testing.runtimes import ManualThreadRuntime
from leasehold.values import Claim, Grant, Holder, Mode
from tests.stores.scripted_pool import ScriptedPool

if TYPE_CHECKING:
    from verification.lab.mariadb import MariadbServer

LABEL = "mysql://h/db"
FINE = Answer([Result([], 1)])
PATIENCE = 2.0


def refused(code: int, *results: Result, state: str = "HY000") -> Answer:
    return Answer(list(results), ServerError(code, state, "why"))


class TurnedClock(ManualThreadRuntime):
    """Each sleep turns the clock, and is noted."""

    def __init__(self) -> None:
        self.clock = ManualClock(autojump=None)
        super().__init__(self.clock)
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance(seconds)

    def random(self) -> float:
        return 0.5


class Source(ScriptedPool):
    def __init__(self, runtime: TurnedClock, *answers: Answer | BaseException) -> None:
        super().__init__(*answers)
        self.runtime = runtime
        self.closed_by_us = 0
        self.until: set[float] = set()

    async def query(self, text: bytes, until: float = math.inf) -> Any:
        self.until.add(until)
        return self.answer(text)

    def close(self) -> None:
        self.closed_by_us += 1


class KnownSchema:
    """Tables that are there; it counts how often they were looked for."""

    def __init__(self) -> None:
        self.is_known = True
        self.checks = 0

    async def check(self, _: object, __: float) -> None:
        self.checks += 1
        self.is_known = True


class Bench:
    def __init__(self, *answers: Answer | BaseException) -> None:
        self.runtime = TurnedClock()
        self.source = cast("Any", Source(self.runtime, *answers))
        self.schema = cast("Any", KnownSchema())
        self.executor = Executor(self.source, self.schema, LABEL, self.runtime, PATIENCE)

    def execute(self, until: float = math.inf, **words: bool) -> Any:
        return run(self.executor.execute(b"Q", until, **words))


def test_an_answer_gives_the_connection_back() -> None:
    bench = Bench(FINE)
    assert bench.execute(1234.0, first=True, extra=True) == FINE.results
    assert (bench.source.given, bench.source.discarded) == (1, [])
    assert bench.source.taken == [(1234.0, True, True)]
    assert bench.source.sent == [b"Q"]


@pytest.mark.parametrize("code", [1205, 1213])
def test_a_query_that_met_a_deadlock_is_sent_again_after_a_pause(code: int) -> None:
    bench = Bench(refused(code), refused(code), FINE)
    assert bench.execute() == FINE.results
    assert bench.source.sent == [b"Q"] * 3
    assert len(bench.runtime.slept) == 2
    assert all(seconds > 0 for seconds in bench.runtime.slept)


@pytest.mark.parametrize(("given", "expected"), [(math.inf, PATIENCE), (0.5, 0.5), (60.0, PATIENCE)])
def test_deadlocks_without_end_are_an_outage_after_a_while(given: float, expected: float) -> None:
    bench = Bench(refused(1213))
    began = bench.runtime.now()
    with pytest.raises(BackendUnavailable, match="deadlock"):
        bench.execute(began + given)
    assert expected <= bench.runtime.now() - began < expected + 0.1


def test_an_error_after_the_first_statement_ends_its_transaction_before_the_connection_is_used_again() -> None:
    bench = Bench(refused(1317, Result([])), FINE)
    with pytest.raises(BackendUnavailable, match="by an operator"):
        bench.execute(1234.0)
    assert bench.source.sent == [b"Q", b"ROLLBACK"]
    assert bench.source.until == {1234.0}, "that it is ended takes none of the time that the caller does not have"
    assert (bench.source.given, bench.source.discarded) == (1, [])
    at_once = Bench(refused(1317))
    with pytest.raises(BackendUnavailable):
        at_once.execute()
    assert at_once.source.sent == [b"Q"], "nothing was begun"


@pytest.mark.parametrize(("code", "kind"), [(1290, BackendUnavailable), (1053, OutcomeUnknown), (1927, OutcomeUnknown)])
def test_a_server_that_cannot_serve_any_more_costs_its_connection(code: int, kind: type) -> None:
    bench = Bench(refused(code))
    with pytest.raises(kind):
        bench.execute()
    assert (bench.source.given, bench.source.discarded) == (0, [True])
    assert bench.source.closed_by_us == 1


def test_a_call_without_an_answer_costs_its_connection_and_the_idle_ones() -> None:
    bench = Bench(OutcomeUnknown("no answer", backend=LABEL))
    with pytest.raises(OutcomeUnknown):
        bench.execute(bench.runtime.now() + 1)
    assert bench.source.discarded == [True]


def test_a_call_in_a_hurry_proves_nothing_about_other_connections() -> None:
    bench = Bench(OutcomeUnknown("no answer", backend=LABEL))
    with pytest.raises(OutcomeUnknown):
        bench.execute(bench.runtime.now())
    assert bench.source.discarded == [False]
    broken = Bench(OutcomeUnknown("it ended", backend=LABEL))
    broken.source.is_failed = True
    with pytest.raises(OutcomeUnknown):
        broken.execute(broken.runtime.now())
    assert broken.source.discarded == [True]


def test_an_interrupted_call_costs_its_connection_alone() -> None:
    bench = Bench(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        bench.execute()
    assert bench.source.discarded == [False]


def test_a_call_that_fails_because_the_client_was_closed_says_so() -> None:
    bench = Bench(OutcomeUnknown("interrupted", backend=LABEL))
    bench.source.is_closed = True
    with pytest.raises(ClientClosed):
        bench.execute()
    interrupted = Bench(KeyboardInterrupt())
    interrupted.source.is_closed = True
    with pytest.raises(KeyboardInterrupt):
        interrupted.execute()


def test_tables_that_vanished_are_looked_for_again_before_the_next_try() -> None:
    bench = Bench(refused(1146), FINE)
    assert bench.execute() == FINE.results
    assert bench.schema.checks == 1
    assert bench.source.sent == [b"Q", b"Q"]


def test_a_table_that_is_missing_still_is_told_with_what_to_do() -> None:
    """It was asked for again and again for as long as the caller had time: for ever, for an operator."""
    bench = Bench(refused(1146), refused(1146), AssertionError("it is asked for again"))
    with pytest.raises(BackendRejected, match="leasehold schema mysql"):
        bench.execute()


def test_a_query_that_only_looks_makes_no_tables_and_finds_nothing_where_there_are_none() -> None:
    bench = Bench(refused(1146))
    bench.schema.is_known = False
    assert run(bench.executor.look(b"Q")) == ()
    assert bench.schema.checks == 0
    found = Bench(FINE)
    assert run(found.executor.look(b"Q")) == FINE.results
    with pytest.raises(BackendRejected):
        run(Bench(refused(1142)).executor.look(b"Q"))


def test_looking_for_the_tables_sends_nothing_of_the_callers() -> None:
    """So a missing answer to it is no unknown outcome."""
    bench = Bench(FINE)
    bench.schema.is_known = False

    async def lost(*_: object) -> None:
        raise OutcomeUnknown("no answer", backend=LABEL)

    bench.schema.check = lost
    with pytest.raises(BackendUnavailable, match="no answer"):
        bench.execute()
    assert bench.source.sent == []
    assert bench.source.closed_by_us == 1, "the answer would be taken for that to the next query"
    assert bench.source.discarded == [True]


# --- sessions


def prepared(*answers: Answer | BaseException, idle: int = 60, query: str = "") -> tuple[Source, Any]:
    runtime = TurnedClock()
    source: Any = Source(runtime, *answers)
    source.number = 41
    waits: Any = None
    run(Dialer(parse(StoreURL.parse(f"mysql://h/db{query}")), waits, runtime, idle=idle).prepare(source, math.inf))
    return source, source.is_direct


def greeting(number: bytes = b"41", logs: bytes = b"0", form: bytes = b"MIXED") -> Answer:
    return Answer([Result([]), Result([]), Result([(number, logs, form)])])


@pytest.mark.parametrize(
    ("logs", "form", "level"),
    [(b"0", b"STATEMENT", None), (b"1", b"ROW", None), (b"1", b"MIXED", None), (b"1", b"STATEMENT", REPEATABLE_READ)],
)
def test_only_a_server_that_logs_statements_is_used_at_another_level(
    logs: bytes, form: bytes, level: bytes | None
) -> None:
    source, _ = prepared(greeting(logs=logs, form=form))
    assert source.sent[1:] == ([] if level is None else [level])
    assert source.sent[0].endswith(READ_COMMITTED + b";" + WHO)


@pytest.mark.parametrize(("number", "direct"), [(b"41", True), (b"42", False)])
def test_a_session_with_another_number_than_at_the_connect_is_behind_a_proxy(number: bytes, direct: bool) -> None:
    assert prepared(greeting(number))[1] is direct


def test_a_session_that_cannot_be_set_up_is_an_error_before_anything_was_sent() -> None:
    with pytest.raises(BackendUnavailable, match="no answer"):
        prepared(OutcomeUnknown("no answer", backend=LABEL))
    with pytest.raises(BackendRejected, match="--role"):
        prepared(refused(1227))


@pytest.mark.parametrize(("query", "seconds"), [("", 5), ("?answer_timeout=0.2", 1), ("?answer_timeout=2.1", 3)])
def test_a_statement_waits_for_a_row_no_longer_than_its_caller_for_the_answer(query: str, seconds: int) -> None:
    source, _ = prepared(greeting(), query=query)
    assert source.sent[0].partition(b";")[0].endswith(b", innodb_lock_wait_timeout=%d" % seconds)


@pytest.mark.parametrize(("mode", "idle"), [("rows", 60), ("session", 7 * 86_400)])
def test_every_session_is_set_up_the_same_whatever_the_server_has_by_default(
    mariadb: MariadbServer, mariadb_database: str, mode: str, idle: int
) -> None:
    mariadb.run("SET GLOBAL time_zone = '-09:00'")
    try:
        backend: Any = find_store(f"{mariadb_database}?mode={mode}&answer_timeout=7").open_backend(ThreadRuntime())

        async def settings() -> Any:
            connection = await backend._executor.source.take()
            answer = await connection.query(
                b"SELECT @@sql_mode, @@time_zone, @@autocommit, @@wait_timeout, @@innodb_lock_wait_timeout, "
                b"@@tx_isolation, @@character_set_client"
            )
            assert connection.is_direct
            backend._executor.source.give(connection)
            await backend.close()
            return answer.results[0].rows[0]

        assert run(settings()) == (
            b"STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION", b"+00:00", b"1", b"%d" % idle, b"7", b"READ-COMMITTED",
            b"utf8mb4",
        )  # fmt: skip
    finally:
        mariadb.run("SET GLOBAL time_zone = 'SYSTEM'")


def test_one_table_that_was_dropped_is_told_with_what_to_do(mariadb: MariadbServer, mariadb_database: str) -> None:
    with leasehold.connect(mariadb_database, ttl=20) as client:
        client.lock("job").acquire().release()
        mariadb.run("DROP TABLE leasehold_claim", mariadb_database.rpartition("/")[2])
        with pytest.raises(BackendRejected, match="leasehold schema mysql"):
            client.semaphore("slots", 2).acquire(timeout=60)


# --- what both modes share


def claim(key: str = "leasehold:job") -> Claim:
    return Claim(key, ThreadRuntime().owner(), 60.0, Mode.EXCLUSIVE, 1, 0.0, Holder("h", 1))


def backend_of(bench: Bench) -> BaseBackend:
    return BaseBackend(parse(StoreURL.parse("mysql://h/db")), bench.executor, bench.runtime)


@pytest.mark.parametrize(("failing", "known"), [(None, 1200), (1, 500), (2, 1000)])
@pytest.mark.parametrize(
    "error", [BackendUnavailable("away"), OutcomeUnknown("no answer"), BackendRejected("no right")]
)
def test_many_renewals_are_sent_in_parts_and_the_answers_of_those_before_a_failure_are_kept(
    monkeypatch: pytest.MonkeyPatch, failing: int | None, known: int, error: Exception
) -> None:
    backend, parts = backend_of(Bench(FINE)), list[int]()

    async def renew(grants: Any, _: float) -> Any:
        parts.append(len(grants))
        if len(parts) - 1 == failing:
            raise error
        return list(grants)

    monkeypatch.setattr(backend, "_renew", renew)
    grants = [Grant(claim(), number, 60.0) for number in range(1200)]
    answers = run(backend.renew(grants))
    assert answers == [*grants[:known], *[error] * (1200 - known)]
    assert max(parts) == RENEWED_AT_ONCE


@pytest.mark.parametrize("error", [BackendUnavailable("away"), OutcomeUnknown("no answer")])
def test_a_renewal_whose_first_part_fails_fails(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    backend = backend_of(Bench(FINE))

    async def renew(*_: object) -> None:
        raise error

    monkeypatch.setattr(backend, "_renew", renew)
    with pytest.raises(type(error)):
        run(backend.renew([Grant(claim(), 1, 60.0)]))


def test_a_name_that_others_change_all_the_time_is_given_up_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(FINE)
    backend: Any = backend_of(bench)

    async def never(*_: object, **__: object) -> bool:
        return False

    async def read(*_: object, **__: object) -> None:
        bench.runtime.clock.advance(0.01)

    monkeypatch.setattr(backend, "_read", read)
    monkeypatch.setattr(backend, "_decided", lambda *_: None)
    monkeypatch.setattr(backend, "_is_written", never)
    began = bench.runtime.now()
    with pytest.raises(BackendUnavailable, match="other clients change this name"):
        run(backend._visit("k", math.inf, lambda _: None))
    assert base.PATIENCE <= bench.runtime.now() - began < base.PATIENCE + 0.1
    assert bench.runtime.slept[0] < bench.runtime.slept[-1] <= base.LONGEST_PAUSE, "the pauses grow, up to a limit"
    bench.runtime.slept.clear()
    with pytest.raises(BackendUnavailable):
        run(backend._visit("k", bench.runtime.now() + 0.2, lambda _: None, first=True))
    assert bench.runtime.slept == [], "a release gives way to nobody"
    assert bench.runtime.now() - began < base.PATIENCE + 0.5, "and ends when its caller has no use for it"


@pytest.mark.parametrize("verb", ["release", "withdraw"])
def test_who_gives_a_name_back_goes_ahead_of_those_who_want_it(verb: str) -> None:
    """Every query of it; it is over when its caller has no use for it."""
    bench = Bench(FINE)
    backend: Any = backend_of(bench)
    waited: list[float] = []

    async def wait(_: str, __: object, until: float) -> None:
        waited.append(until)

    backend._turns.wait = wait
    held = replace(claim(), mode=Mode.SHARED)
    now = bench.runtime.now()
    line = list[bytes | None]([None] * 29)
    line[0], line[1], line[2], line[3], line[4], line[5] = b"9000000", b"leasehold:job", b"3", b"7", b"2", b"0"
    line[13:28] = [
        b"1", held.owner.encode(), b"1", b"shared", b"1", b"60000000", b"0", b"{}", b"7", b"8000000", b"68000000",
        b"0", None, None, None,
    ]  # fmt: skip
    bench.source.answers = [Answer([Result([tuple(line)])]), Answer([Result([]), Result([], 1), *[Result([])] * 8])]
    given = Grant(held, 7, 60.0) if verb == "release" else held
    assert run(getattr(backend, verb)(given, now + 9)) in (True, None)
    assert bench.source.taken == [(now + 9, True, False)] * 2
    assert waited == [now + 9]


def test_a_change_that_failed_ends_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    backend: Any = backend_of(Bench(FINE))

    async def failing(*_: object, **__: object) -> None:
        raise OutcomeUnknown("no answer", backend=LABEL)

    monkeypatch.setattr(backend, "_read", failing)
    for _ in range(3):
        with pytest.raises(OutcomeUnknown):
            run(backend._visit("k", math.inf, lambda _: None))
    assert backend._turns._queues == {}, "no later call waits for one that has failed"


def test_the_memory_of_crowded_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    backend: Any = backend_of(Bench(FINE))
    monkeypatch.setattr(base, "MOST_CROWDED", 3)
    for number in range(5):
        rows: Any = type("Rows", (), {"key": f"k{number}", "waiting": lambda _: [1]})()
        backend._note_crowd(rows)
        assert rows.key in backend._crowded
        assert len(backend._crowded) <= 3


@pytest.mark.parametrize(("key", "fits"), [("x" * LONGEST_KEY, True), ("x" * (LONGEST_KEY + 1), False)])
@pytest.mark.parametrize("letter", ["x", "\u00e9"])
def test_a_name_of_more_bytes_than_the_column_has_is_refused_before_it_is_sent(
    key: str, fits: bool, letter: str
) -> None:
    backend: Any = backend_of(Bench(FINE))
    key = (letter * len(key)).encode()[: len(key) - len(key) % len(letter.encode())].decode() + "x" * (not fits)
    if fits:
        assert backend._check_length(key) is None
        return
    with pytest.raises(ConfigurationError, match=str(LONGEST_KEY)):
        backend._check_length(key)


def test_a_grant_that_is_not_there_any_more_is_taken(mariadb_database: str) -> None:
    """Beside those that are there, whatever kind they are of, each at its own place."""
    backend: Any = find_store(mariadb_database).open_backend(ThreadRuntime())

    async def story() -> None:
        plain, gone = await backend.try_acquire(claim("ns:a")), Grant(claim("ns:b"), 5, 60.0)
        reader = await backend.try_acquire(replace(claim("ns:c"), mode=Mode.SHARED, ttl=50.0))
        assert await backend.renew([gone, plain, reader]) == [TAKEN, plain, reader]
        assert await backend.renew([replace(plain, fence=plain.fence - 1)]) == [TAKEN]
        assert await backend.renew([plain, gone]) == [plain, TAKEN]
        sent: list[bytes] = []
        execute = backend._execute

        async def count(text: bytes, *more: Any, **words: Any) -> Any:
            sent.append(text)
            return await execute(text, *more, **words)

        backend._execute = count
        assert await backend.renew([plain, reader]) == [plain, reader]
        assert await backend.renew([plain]) == [plain]
        assert len(sent) == 2, "one query for all, of whatever kind"
        await backend.close()

    run(story())
