"""The attempts of `retry_on_conflict` one by one: what an error of the commit leaves open, pauses, deadlines, notes."""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
import warnings
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import psycopg
import pymysql
import pytest
from sqlalchemy.orm.exc import StaleDataError

from leasehold import Backoff
from leasehold.errors import (
    AcquireTimeout,
    ConfigurationError,
    OutcomeUnknown,
    RetryTransaction,
    VersionConflict,
)
from leasehold.sql import retry_on_conflict
from leasehold.sql.optimistic import attempts as module
from leasehold.sql.optimistic.attempts import Attempts, Rules, commit_is_unknown, is_conflict
from leasehold.sql.optimistic.retry import RETRIES
from leasehold.sql.optimistic.units import async_manager_of, manager_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


def lite(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("why")
    error.sqlite_errorcode = code
    return error


class OperationalError(Exception):
    """As drivers without codes name theirs."""


class InterfaceError(Exception):
    """The same."""


class DBAPIError(Exception):
    """As SQLAlchemy names its own."""


@pytest.mark.parametrize(
    ("error", "unknown"),
    [
        *((psycopg.errors.lookup(state)(), True) for state in ("08006", "08003", "57P01", "57P02", "58030", "XX000")),
        (psycopg.errors.lookup("40003")(), True),
        *((psycopg.errors.lookup(state)(), False) for state in ("23505", "42P01", "57014", "53300", "40002")),
        *((pymysql.OperationalError(n, "x"), True) for n in (2000, 2006, 2013, 2055, 2999)),
        *((pymysql.OperationalError(n, "x"), True) for n in (0, 1053, 1152, 1317, 1927, 3024, 4031)),
        *((pymysql.OperationalError(n, "x"), False) for n in (1062, 1452, 1999, 3000, 1690)),
        *((lite(n), True) for n in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_FULL)),
        *((lite(n), True) for n in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_PROTOCOL)),
        *((lite(n), False) for n in (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_READONLY)),
        (OperationalError(), True),
        (InterfaceError(), True),
        (DBAPIError(), True),
        (BrokenPipeError(), True),
        (OutcomeUnknown("x"), True),
        (AcquireTimeout("x"), False),
        (TypeError("x"), False),
    ],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'args', value)}",
)
def test_what_an_error_of_the_commit_leaves_open(error: Exception, unknown: bool) -> None:
    assert commit_is_unknown(error) is unknown


# --- one attempt after the other


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which stands still until a test moves it; and no jitter."""
    now = [1000.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    monkeypatch.setattr(module, "jitter", lambda: 0.5)
    return now


STEPS = Backoff(("10s", "20s"), factor=2, longest="1000s", jitter="none", tries=5)
LOST = OperationalError("gone")


def attempts(
    timeout: float | None = None, *, idempotent: bool = False, backoff: Backoff = STEPS, on_retry: Any = None
) -> Attempts:
    return Attempts(Rules(backoff, timeout, idempotent, on_retry))


def test_each_pause_is_the_next_of_the_backoff_and_the_last_try_has_none(clock: list[float]) -> None:
    heard: list[Any] = []
    some = attempts(on_retry=lambda *words: heard.append(words))
    conflict = VersionConflict("x")
    assert [some.after(conflict, committing=False) for _ in range(4)] == [10, 20, 40, 80]
    assert heard == [(1, conflict, 10), (2, conflict, 20), (3, conflict, 40), (4, conflict, 80)]
    clock[0] += 7.5
    with pytest.raises(VersionConflict) as caught:
        some.after(conflict, committing=False)
    assert caught.value.__notes__ == ["retry_on_conflict gave up after 5 tries in 7.50 s"]
    assert len(heard) == 4


def test_jitter_is_drawn_for_every_pause(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    chances = iter([0.25, 0.5])
    monkeypatch.setattr(module, "jitter", lambda: next(chances))
    some = attempts(backoff=Backoff(("10s",), factor=1, longest="10s", jitter="full"))
    assert [some.after(RetryTransaction("x"), committing=True) for _ in range(2)] == [2.5, 5.0]


@pytest.mark.parametrize(("spent", "pause"), [(0, 10), (19.9, 10), (20, None), (30, None), (99, None)])
def test_the_deadline_counts_from_the_first_try_and_includes_the_pause(
    clock: list[float], spent: float, pause: float | None
) -> None:
    some = attempts(timeout=30)
    clock[0] += spent
    if pause is None:
        with pytest.raises(VersionConflict) as caught:
            some.after(VersionConflict("x"), committing=False)
        assert "gave up after 1 tries" in caught.value.__notes__[0]
    else:
        assert some.after(VersionConflict("x"), committing=False) == pause


def test_commit_without_an_answer_is_done_again_only_if_it_may_be_and_while_there_is_time(clock: list[float]) -> None:
    assert attempts(idempotent=True).after(LOST, committing=True) == 10
    for some in (attempts(), attempts(timeout=5, idempotent=True), attempts(backoff=Backoff(tries=1), idempotent=True)):
        with pytest.raises(OutcomeUnknown, match=r"\(gone\): the unit may have been done or not") as caught:
            some.after(LOST, committing=True)
        assert caught.value.__cause__ is LOST
    with pytest.raises(OperationalError) as plain:
        attempts(idempotent=True).after(LOST, committing=False)
    assert plain.value is LOST


def test_an_earlier_commit_without_an_answer_is_told_with_whatever_ends_the_call(clock: list[float]) -> None:
    some = attempts(idempotent=True)
    some.after(LOST, committing=True)
    some.after(VersionConflict("x"), committing=False)  # a conflict after it does not make it known
    ended = ZeroDivisionError("x")
    with pytest.raises(ZeroDivisionError):
        some.after(ended, committing=False)
    assert [note.split(":")[0] for note in ended.__notes__] == [
        "the connection failed while an earlier try was being committed"
    ]
    untold = ZeroDivisionError("x")
    with pytest.raises(ZeroDivisionError):
        attempts().after(untold, committing=False)
    assert not hasattr(untold, "__notes__")


# --- the loops


class Book:
    """Transactions that only note what happens to them."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    @contextmanager
    def begin(self) -> Iterator[str]:
        self.notes.append("begin")
        yield "tx"
        self.notes.append("commit")

    @asynccontextmanager
    async def begin_async(self) -> AsyncIterator[str]:
        with self.begin() as tx:
            yield tx


def test_the_pause_is_slept_between_two_tries_on_both_faces(
    slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    again = Backoff(("3s", "5s"), longest="5s", jitter="none")

    async def sleep(pause: float) -> None:
        slept.append(pause)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    for is_async in (False, True):
        left = [VersionConflict("1"), VersionConflict("2")]

        def work(tx: str, left: list[VersionConflict] = left) -> str:
            if left:
                raise left.pop()
            return tx

        async def work_async(tx: str, work: Any = work) -> str:
            return str(work(tx))

        book = Book()
        if is_async:
            assert asyncio.run(retry_on_conflict(book.begin_async, work_async, backoff=again)) == "tx"
        else:
            assert retry_on_conflict(book.begin, work, backoff=again) == "tx"
        assert slept == [3, 5]
        assert book.notes == ["begin", "begin", "begin", "commit"]
        slept.clear()


def test_a_decorated_unit_keeps_its_name_and_gets_what_it_was_called_with() -> None:
    book = Book()

    @retry_on_conflict(book.begin)
    def ship(tx: str, order: int, *, by: str) -> tuple[str, int, str]:
        """What it does."""
        return tx, order, by

    @retry_on_conflict(book.begin_async)
    async def ship_async(tx: str, order: int, *, by: str) -> tuple[str, int, str]:
        """The same."""
        return tx, order, by

    assert ship(7, by="sea") == ("tx", 7, "sea")
    assert asyncio.run(ship_async(7, by="sea")) == ("tx", 7, "sea")
    assert (ship.__name__, ship.__doc__) == ("ship", "What it does.")
    assert (ship_async.__name__, ship_async.__doc__) == ("ship_async", "The same.")


def test_twenty_tries_with_full_jitter_unless_told_otherwise(slept: list[float]) -> None:
    assert (RETRIES.tries, RETRIES.jitter) == (20, "full")
    book = Book()

    def fail(tx: str) -> None:
        raise VersionConflict("x")

    with pytest.raises(VersionConflict):
        retry_on_conflict(book.begin, fail)
    assert book.notes == ["begin"] * 20
    assert len(slept) == 19


def test_an_error_that_ends_the_program_is_not_run_again() -> None:
    book = Book()

    def fail(tx: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        retry_on_conflict(book.begin, fail)
    assert book.notes == ["begin"]


# --- from `begin` to a transaction


def test_what_begin_gives_for_the_other_face_is_refused_and_nothing_is_left_to_await() -> None:
    async def connect() -> Book:
        return Book()

    class Both:
        """As aiomysql and asyncpg give it: to await, or to enter."""

        def __await__(self) -> Any:
            raise AssertionError("it is entered, and not awaited")

        async def __aenter__(self) -> str:
            return "tx"

        async def __aexit__(self, *_: object) -> None:
            pass

    both = Both()
    assert asyncio.run(async_manager_of(lambda: both)) is both
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConfigurationError, match=r"gave something to await, .*`async def`"):
            manager_of(connect)
    for begin in (lambda: both, Book().begin_async):
        with pytest.raises(ConfigurationError, match=r"gave an async context manager, .*`async def`"):
            manager_of(begin)
    with pytest.raises(ConfigurationError, match=r"gave a context manager that blocks, .*`def`"):
        asyncio.run(async_manager_of(Book().begin))
    for begin in (Book, connect):
        with pytest.raises(ConfigurationError, match=r"one transaction, as engine\.begin does, not a Book"):
            asyncio.run(async_manager_of(begin))
    with pytest.raises(ConfigurationError, match="not a Book"):
        manager_of(Book)


@pytest.mark.parametrize("maker", ["sqlalchemy.orm", "pymysql.connections", "aiomysql", "asyncmy", "MySQLdb"])
def test_a_connection_that_closes_without_a_commit_is_refused_by_the_name_of_its_maker(maker: str) -> None:
    def manager(*extra: str) -> Any:
        names = ("__enter__", "__exit__", "__aenter__", *extra)
        return type("Connection", (), {"__module__": maker, **dict.fromkeys(names)})()

    what = r"engine\.begin" if maker.startswith("sqlalchemy") else "@contextmanager"
    refusal = rf"Connection of {maker.partition('.')[0]}, .*would be lost: .*{what}"
    with pytest.raises(ConfigurationError, match=refusal):
        manager_of(lambda: manager("commit"))
    with pytest.raises(ConfigurationError, match=refusal):
        asyncio.run(async_manager_of(lambda: manager("commit")))
    manager_of(manager)  # a block, such as that of engine.begin()


def test_a_commit_that_got_no_answer_is_told_from_a_unit_that_got_none_on_both_faces() -> None:
    class Begun:
        def __init__(self, *, breaks: bool) -> None:
            self.breaks = breaks

        def __enter__(self) -> object:
            return self

        def __exit__(self, kind: object, *_: object) -> None:
            if self.breaks:
                raise OSError("away at the commit")

        async def __aenter__(self) -> object:
            return self

        async def __aexit__(self, kind: object, *_: object) -> None:
            self.__exit__(kind)

    def fail(_: object) -> None:
        raise OSError("away before")

    async def fail_later(_: object) -> None:
        fail(_)

    async def work(_: object) -> int:
        return 1

    with pytest.raises(OutcomeUnknown, match="away at the commit"):
        retry_on_conflict(lambda: Begun(breaks=True), lambda _: 1)
    with pytest.raises(OutcomeUnknown, match="away at the commit"):
        asyncio.run(retry_on_conflict(lambda: Begun(breaks=True), work))
    with pytest.raises(OSError, match="away before"):
        retry_on_conflict(lambda: Begun(breaks=False), fail)
    with pytest.raises(OSError, match="away before"):
        asyncio.run(retry_on_conflict(lambda: Begun(breaks=False), fail_later))


def test_a_limit_of_no_time_allows_one_try() -> None:
    tries: list[int] = []

    def unit(_: object) -> None:
        tries.append(1)
        raise RetryTransaction("again")

    with pytest.raises(RetryTransaction):
        retry_on_conflict(nullcontext, unit, timeout=0, backoff=Backoff(("1ms",), jitter="none", tries=3))
    assert tries == [1]


def test_a_stale_object_of_sqlalchemy_is_a_conflict_also_inside_an_error_of_the_program(clock: list[float]) -> None:
    inner, middle, outer = StaleDataError("0 rows matched"), ValueError("order 7"), RuntimeError("could not ship")
    outer.__cause__, middle.__cause__ = middle, inner
    assert is_conflict(inner)
    assert is_conflict(outer)
    assert not is_conflict(RuntimeError("could not ship"))
    assert attempts().after(outer, committing=True) == 10


def test_what_a_unit_gave_to_await_is_closed_before_its_transaction_is_rolled_back() -> None:
    given: list[Any] = []

    async def later() -> None:
        """Never run."""

    def unit(_: object) -> Any:
        given.append(later())
        return given[-1]

    with pytest.raises(ConfigurationError, match="the unit gave something to await"):
        retry_on_conflict(nullcontext, unit)
    assert [inspect.getcoroutinestate(each) for each in given] == ["CORO_CLOSED"], "once, and nothing is left of it"
