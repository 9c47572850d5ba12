"""`retry_on_conflict`: the whole unit again, in a fresh transaction, for conflicts only, and not for ever."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pymysql
import pytest
import sqlalchemy
from django.db import connections
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.orm.exc import StaleDataError

from leasehold import Backoff
from leasehold.errors import ConfigurationError, OutcomeUnknown, RetryTransaction, RowBusy, VersionConflict
from leasehold.sql import cas_update, retry_on_conflict
from leasehold.sql.optimistic.attempts import commit_is_unknown, is_conflict
from tests.processes.optimistic_worker import Base, Counter
from tests.sql.desks import django_alias, sqlalchemy_url
from tests.sql.pairs import fresh_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

QUICK = Backoff(("1ms",), longest="1ms", jitter="full", tries=4)


class Book:
    """A database that only notes what happens to its transactions; `at_commit` are errors of the commits to come."""

    def __init__(self, *at_commit: Exception) -> None:
        self.notes: list[str] = []
        self._at_commit = list(at_commit)

    @contextmanager
    def begin(self) -> Iterator[object]:
        self.notes.append("begin")
        try:
            yield object()
        except BaseException:
            self.notes.append("rollback")
            raise
        if self._at_commit:
            raise self._at_commit.pop(0)
        self.notes.append("commit")

    @asynccontextmanager
    async def begin_async(self) -> AsyncIterator[object]:
        with self.begin() as tx:
            yield tx


def failing(*errors: Exception) -> Any:
    left = list(errors)

    def unit(tx: object) -> str:
        if left:
            raise left.pop(0)
        return "done"

    return unit


CONFLICTS = [
    VersionConflict("x"),
    RetryTransaction("x"),
    RowBusy("x"),
    StaleDataError("x"),
    pymysql.OperationalError(1213, "Deadlock found"),
    psycopg.errors.SerializationFailure("x"),
]


@pytest.mark.parametrize("error", CONFLICTS, ids=lambda error: type(error).__name__)
def test_conflict_is_run_again_in_a_fresh_transaction(error: Exception) -> None:
    book, heard = Book(), []
    run = retry_on_conflict(book.begin, backoff=QUICK, on_retry=lambda *words: heard.append(words))
    assert run(failing(error, error))() == "done"
    assert book.notes == ["begin", "rollback", "begin", "rollback", "begin", "commit"]
    assert [(attempt, what) for attempt, what, _ in heard] == [(1, error), (2, error)]
    assert all(0 <= pause <= 0.001 for _, _, pause in heard)


@pytest.mark.parametrize("error", CONFLICTS, ids=lambda error: type(error).__name__)
def test_conflict_that_the_commit_reports_is_run_again_too(error: Exception) -> None:
    book = Book(error)
    assert retry_on_conflict(book.begin, lambda tx: "done", backoff=QUICK) == "done"
    assert book.notes == ["begin", "begin", "commit"]


def test_other_errors_are_not_run_again() -> None:
    book = Book()
    with pytest.raises(ZeroDivisionError):
        retry_on_conflict(book.begin, lambda tx: 1 / 0, backoff=QUICK)
    assert book.notes == ["begin", "rollback"]


def test_giving_up_raises_the_last_conflict_and_says_how_often_it_tried() -> None:
    book = Book()
    with pytest.raises(VersionConflict) as caught:
        retry_on_conflict(book.begin, failing(*(VersionConflict(str(n)) for n in range(9))), backoff=QUICK)
    assert str(caught.value) == "3"
    assert "4 tries" in caught.value.__notes__[0]
    assert book.notes.count("begin") == 4


def test_no_pause_begins_that_would_end_after_the_deadline() -> None:
    book = Book()
    slow = Backoff(("30d",), longest="30d", jitter="none")
    with pytest.raises(VersionConflict):
        retry_on_conflict(book.begin, failing(VersionConflict("x")), backoff=slow, timeout="1h")
    assert book.notes == ["begin", "rollback"]


LOST = [
    psycopg.OperationalError("server closed the connection unexpectedly"),
    psycopg.errors.AdminShutdown("x"),
    pymysql.OperationalError(2013, "Lost connection"),
    ConnectionResetError("x"),
    sqlalchemy.exc.OperationalError("COMMIT", {}, psycopg.OperationalError("gone")),
]


@pytest.mark.parametrize("error", LOST, ids=lambda error: f"{type(error).__module__}.{type(error).__name__}")
def test_commit_whose_answer_is_lost_is_not_run_again_unless_it_may_be_done_twice(error: Exception) -> None:
    book = Book(error)
    with pytest.raises(OutcomeUnknown, match="may have been done"):
        retry_on_conflict(book.begin, lambda tx: "done", backoff=QUICK)
    assert book.notes == ["begin"]
    book = Book(error)
    assert retry_on_conflict(book.begin, lambda tx: "done", backoff=QUICK, idempotent=True) == "done"
    assert book.notes == ["begin", "begin", "commit"]


def test_unknown_outcome_of_an_earlier_try_is_not_forgotten() -> None:
    book = Book(LOST[0])
    numbers = iter([1, 0])
    with pytest.raises(ZeroDivisionError) as caught:
        retry_on_conflict(book.begin, lambda tx: 1 / next(numbers), backoff=QUICK, idempotent=True)
    assert "may have been done or not" in caught.value.__notes__[0]
    with pytest.raises(OutcomeUnknown):
        retry_on_conflict(Book(*[LOST[0]] * 9).begin, lambda tx: "done", backoff=QUICK, idempotent=True)


def test_commit_that_the_database_refuses_is_no_unknown_outcome() -> None:
    for error in (psycopg.errors.UniqueViolation("x"), pymysql.IntegrityError(1452, "x"), ValueError("x")):
        assert not commit_is_unknown(error)
        assert not is_conflict(error)
        book = Book(error)
        with pytest.raises(type(error)):
            retry_on_conflict(book.begin, lambda tx: "done", backoff=QUICK)
        assert book.notes == ["begin"]


def test_connection_that_is_lost_before_the_commit_is_no_unknown_outcome() -> None:
    with pytest.raises(psycopg.OperationalError):
        retry_on_conflict(Book().begin, failing(LOST[0]), backoff=QUICK)


def test_coroutine_is_awaited_and_run_again() -> None:
    book = Book()
    errors = [VersionConflict("x")]

    @retry_on_conflict(book.begin_async, backoff=QUICK)
    async def unit(tx: object, what: str) -> str:
        await asyncio.sleep(0)
        if errors:
            raise errors.pop()
        return what

    assert asyncio.run(unit("done")) == "done"
    assert book.notes == ["begin", "rollback", "begin", "commit"]


def test_generators_and_mixtures_of_blocking_and_async_are_refused() -> None:
    book = Book()

    def generator(tx: object) -> Iterator[int]:
        yield 1

    async def async_generator(tx: object) -> AsyncIterator[int]:
        yield 1

    async def coroutine(tx: object) -> None:
        pass

    def hidden(tx: object) -> Any:
        return coroutine(tx)

    for unit in (generator, async_generator, 7):
        with pytest.raises(ConfigurationError):
            retry_on_conflict(book.begin)(unit)  # type: ignore[arg-type]
    assert book.notes == []
    with pytest.raises(ConfigurationError, match="async def"):
        retry_on_conflict(book.begin, hidden)
    with pytest.raises(ConfigurationError, match="generator"):
        retry_on_conflict(book.begin, lambda tx: generator(tx))  # noqa: PLW0108 - as above
    assert book.notes == ["begin", "rollback"] * 2
    with pytest.raises(ConfigurationError, match="async context manager"):
        retry_on_conflict(book.begin_async, lambda tx: 1)
    with pytest.raises(ConfigurationError, match="blocks"):
        asyncio.run(retry_on_conflict(book.begin, coroutine))
    with pytest.raises(ConfigurationError, match="Django"):
        asyncio.run(retry_on_conflict("default", coroutine))


def test_transaction_that_swallows_an_error_is_told() -> None:
    @contextmanager
    def careless() -> Iterator[int]:
        try:
            yield 1
        except Exception:
            pass

    with pytest.raises(ConfigurationError, match="swallowed"):
        retry_on_conflict(careless, lambda tx: 1 / 0)


def test_what_closes_without_a_commit_is_refused(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/x.db")
    asynchronous = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/x.db")
    for begin in (engine.connect, sessionmaker(engine), lambda: Session(engine)):
        with pytest.raises(ConfigurationError, match="does not commit"):
            retry_on_conflict(begin, lambda tx: None)

    async def unit(tx: object) -> None:
        pass

    with pytest.raises(ConfigurationError, match="does not commit"):
        asyncio.run(retry_on_conflict(asynchronous.connect, unit))
    parts = sqlalchemy.make_url(fresh_url(request, "mysql", tmp_path))
    with pytest.raises(ConfigurationError, match="pymysql"):
        retry_on_conflict(lambda: pymysql.connect(host=parts.host, port=parts.port, user="root"), lambda tx: None)


def test_stale_object_of_sqlalchemy_is_read_again_and_goes_together_with_cas_update(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    engine = sqlalchemy.create_engine(sqlalchemy_url(fresh_url(request, "postgresql", tmp_path)))
    Base.metadata.create_all(engine)
    sessions = sessionmaker(engine)
    with sessions.begin() as session:
        session.add(Counter(id=1, n=0))
    seen: list[int] = []

    @retry_on_conflict(sessions.begin, backoff=QUICK)
    def add(tx: Session) -> None:
        counter = tx.get_one(Counter, 1)
        seen.append(counter.version)
        if len(seen) == 1:
            with engine.begin() as other:
                cas_update(other, "counters", {"n": 10}, where={"id": 1}, version=counter.version)
        counter.n += 1

    add()
    assert seen == [1, 2]
    with sessions.begin() as session:
        counter = session.get_one(Counter, 1)
        assert (counter.n, counter.version) == (11, 3)
    engine.dispose()


def test_alias_of_django_is_a_transaction_that_is_not_inside_another(tmp_path: Path) -> None:
    from django.db import transaction

    alias = django_alias(f"sqlite:///{tmp_path}/x.db")
    with connections[alias].cursor() as cursor:
        cursor.execute("CREATE TABLE t (id integer primary key, n integer, version integer)")
        cursor.execute("INSERT INTO t VALUES (1, 0, 1)")
    versions = iter([7, 1])

    @retry_on_conflict(alias, backoff=QUICK)
    def add(tx: str) -> int:
        return cas_update(tx, "t", {"n": 1}, where={"id": 1}, version=next(versions))

    assert add() == 2
    with transaction.atomic(using=alias), pytest.raises(RuntimeError, match="durable"):
        add()
    connections[alias].close()


@pytest.mark.parametrize(
    "words", [{"backoff": 3}, {"backoff": "full"}, {"timeout": -1}], ids=["number", "text", "timeout"]
)
def test_what_cannot_be_meant_is_refused(words: Any) -> None:
    with pytest.raises(ConfigurationError):
        retry_on_conflict(lambda: sqlite3.connect(":memory:"), lambda tx: None, **words)
    with pytest.raises(ConfigurationError, match="context manager"):
        retry_on_conflict(lambda: 7, lambda tx: None)
