"""A connection of asyncpg as the store uses it: time limits, errors, notifications. The driver's part is played."""

from __future__ import annotations

import asyncio
import math
from typing import Any, cast

import asyncpg
import pytest

from leasehold._backends.postgres import errors
from leasehold._backends.postgres.asyncpg_connection import AsyncpgConnection
from leasehold._backends.postgres.statements import Statements
from leasehold._runtimes.threads import run
from leasehold.errors import BackendRejected, BackendUnavailable, OutcomeUnknown
from tests.unit.planned_waits import PlannedWaits

SQL = Statements("leasehold")
LABEL = "postgresql://h/db"
TIMEOUT = 3.0


class Driver:
    """What is asked of asyncpg; the answer is what the test says."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[object, ...], float]] = []
        self.answer: Any = []
        self.closed = False
        self.in_transaction = False
        self.ends: list[Any] = []

    async def fetch(self, *given: object, timeout: float) -> Any:
        return await self.execute(*given, timeout=timeout)

    async def execute(self, *given: object, timeout: float) -> Any:
        self.asked.append((given, timeout))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def is_closed(self) -> bool:
        return self.closed

    def is_in_transaction(self) -> bool:
        return self.in_transaction

    def terminate(self) -> None:
        self.closed = True


class Bench:
    def __init__(self) -> None:
        self.runtime = cast("Any", PlannedWaits())
        self.driver = Driver()
        self.connection = AsyncpgConnection(self.driver, self.runtime, LABEL, TIMEOUT)

    def execute(self, until: float = math.inf) -> Any:
        return run(self.connection.execute(SQL.break_, (b"k\xff", b"41", None, b"t"), until))

    def tell(self, *contents: str) -> None:
        for content in contents:
            self.connection._receive(None, 7, "bell", content)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_request_has_the_answer_timeout_or_what_is_left_to_its_caller(bench: Bench) -> None:
    now = bench.runtime.now()
    for until in (math.inf, now + 60, now + 0.25, now - 5):
        bench.execute(until)
        run(bench.connection.run_script(b"SELECT 1", until))
    assert [seconds for _, seconds in bench.driver.asked] == [TIMEOUT] * 4 + [0.25] * 2 + [0.0] * 2
    (text, *values), _ = bench.driver.asked[0]
    assert '"leasehold".break_5' in str(text)
    assert values == [b"k\xff", "41", None, "t"], "bytes stay bytes, and all else is a text"
    assert bench.driver.asked[1][0] == ("SELECT 1",)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError(), "no answer in time"),
        (asyncpg.InterfaceError("connection is closed"), "connection is closed"),
        (asyncpg.InternalClientError("lost in the middle"), "lost in the middle"),
        (ConnectionResetError("reset by peer"), "reset by peer"),
        (asyncpg.PostgresConnectionError("it went away"), "it went away"),  # the driver's own, without a severity
    ],
)
def test_a_request_without_an_answer_leaves_its_outcome_open(bench: Bench, error: Exception, words: str) -> None:
    bench.driver.answer = error
    for ask in (bench.execute, lambda: run(bench.connection.run_script(b"SELECT 1"))):
        with pytest.raises(OutcomeUnknown, match=words) as unknown:
            ask()
        assert unknown.value.backend == LABEL


@pytest.mark.parametrize(("english", "shown"), [("FATAL", "FATAL"), (None, "FEHLER")])
def test_a_refusal_of_the_server_is_an_answer_with_its_fields(bench: Bench, english: str | None, shown: str) -> None:
    error: Any = asyncpg.UndefinedTableError("no such table")
    error.severity, error.severity_en, error.message = "FEHLER", english, "no such table"
    bench.driver.answer = error
    answer = bench.execute()
    assert (answer.status, answer.ntuples, errors.sqlstate(answer), errors.message(answer)) == (
        7, 0, "42P01", "no such table",
    )  # fmt: skip
    assert answer.error_field(errors.SEVERITY) == shown.encode()
    assert errors.is_fatal(answer) is (english == "FATAL")


def test_a_connection_that_is_closed_or_in_a_transaction_is_not_used(bench: Bench) -> None:
    assert bench.connection.is_usable()
    bench.driver.in_transaction = True
    assert not bench.connection.is_usable()
    assert not bench.connection.is_broken()
    bench.driver.in_transaction = False
    bench.connection.interrupt()
    assert not bench.connection.is_usable()
    assert bench.connection.is_broken()


# --- notifications


def test_notifications_are_told_once_and_in_their_order(bench: Bench) -> None:
    bench.tell("first", "second")
    assert run(bench.connection.notified(5.0)) is True
    assert bench.connection.notifications() == ["first", "second"]
    assert bench.connection.notifications() == []
    began = bench.runtime.now()
    assert run(bench.connection.notified(5.0)) is False, "it has been told of all of them"
    assert bench.runtime.now() == began + 5.0
    bench.tell("third")
    assert run(bench.connection.notified(5.0)) is True
    assert bench.runtime.now() == began + 5.0


def test_what_had_arrived_before_the_end_is_told_before_it(bench: Bench) -> None:
    bench.tell("last")
    bench.connection.close()
    assert run(bench.connection.notified(5.0)) is True
    assert bench.connection.notifications() == ["last"]
    assert run(bench.connection.notified(5.0)) is True, "nothing more will come"
    with pytest.raises(BackendUnavailable, match="has ended") as ended:
        bench.connection.notifications()
    assert ended.value.backend == LABEL
    assert bench.runtime.waits == []


def test_rows_are_told_as_the_server_would_have_written_them(bench: Bench) -> None:
    bench.driver.answer = [{"a": True, "b": b"\xff", "c": None, "d": 1.5}, {"a": False, "b": 7, "c": "é", "d": 0}]
    for row in bench.driver.answer:
        row.update(enumerate(list(row.values())))  # a record has its values by number, too
    rows = bench.execute()
    assert (rows.status, rows.ntuples, rows.nfields, rows.fname(1)) == (2, 2, 8, b"b")
    assert [[rows.get_value(row, column) for column in range(4)] for row in range(2)] == [
        [b"t", b"\xff", None, b"1.5"], [b"f", b"7", "é".encode(), b"0"],
    ]  # fmt: skip


# --- listening


class Listening(Driver):
    """One that listens as the test says."""

    def __init__(self, error: BaseException | None = None, *, hangs: bool = False) -> None:
        super().__init__()
        self.error = error
        self.hangs = hangs
        self.channels: list[tuple[str, Any]] = []

    def add_termination_listener(self, listener: Any) -> None:
        self.ends.append(listener)

    async def add_listener(self, channel: str, receive: Any) -> None:
        self.channels.append((channel, receive))
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error


def listening(driver: Listening, timeout: float = TIMEOUT) -> AsyncpgConnection:
    runtime: Any = PlannedWaits()
    return AsyncpgConnection(driver, runtime, LABEL, timeout)


@pytest.mark.parametrize("act", ["end", "close", "interrupt"])
def test_the_end_of_a_session_and_a_close_wake_the_listener(act: str) -> None:
    driver = Listening()
    line = listening(driver)
    asyncio.run(line.listen(b"bell"))
    assert driver.channels == [("bell", line._receive)]
    assert run(line.notified(2.0)) is False
    {"end": lambda: driver.ends[0](driver), "close": line.close, "interrupt": line.interrupt}[act]()
    assert line._news.is_set()
    assert run(line.notified(2.0)) is True


@pytest.mark.parametrize(
    ("driver", "kind", "words"),
    [
        (Listening(asyncpg.InterfaceError("connection is closed")), OutcomeUnknown, "connection is closed"),
        (Listening(hangs=True), OutcomeUnknown, "no answer in time"),
        (Listening(ConnectionResetError("reset by peer")), OutcomeUnknown, "reset by peer"),
    ],
)
def test_a_listener_that_gets_no_answer_says_so(driver: Listening, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        asyncio.run(listening(driver, 0.01).listen(b"bell"))


def test_a_listener_that_is_refused_does_not_listen() -> None:
    error: Any = asyncpg.InsufficientPrivilegeError("permission denied")
    error.severity, error.severity_en, error.message = "ERROR", "ERROR", "permission denied"
    with pytest.raises(BackendRejected, match="permission denied"):
        asyncio.run(listening(Listening(error)).listen(b"bell"))
