"""The worker of a queue over every way to get transactions, blocking and on an event loop."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from typing import TYPE_CHECKING, Any

import aiomysql
import asyncmy
import psycopg
import pytest
import sqlalchemy
from django.db import connections
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from leasehold import Backoff
from leasehold.errors import ConfigurationError
from leasehold.sql import GiveUp, Queue
from tests.sql.desks import django_alias, make_desk, sqlalchemy_url
from tests.sql.queue_connect import connect
from tests.sql.queue_places import DATABASES, PLAIN, clear, queue_url, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold.sql import Job
    from tests.sql.desks import Desk

SOON = Backoff(("10ms",), factor=1, longest="10ms")
queue = Queue("refunds", visibility="30s", max_attempts=2, backoff=SOON)
BLOCKING = [
    f"{database} {kind}" for database in DATABASES for kind in ("function", "engine", "session", "django", "autocommit")
]
ASYNC = [
    "postgresql psycopg",
    "postgresql engine",
    "postgresql session",
    "mysql aiomysql",
    "mysql asyncmy",
    "mysql engine",
    "sqlite engine",
]


class Source:
    """What is given to `run`, and a connection of the test's own."""

    def __init__(self, database: Any, desk: Desk) -> None:
        self.database = database
        self.desk = desk

    def enqueue(self, *payloads: object) -> None:
        with self.desk.begin() as tx:
            for payload in payloads:
                queue.enqueue(tx, payload)

    def states(self) -> list[tuple[str, int]]:
        with self.desk.begin() as tx:
            return [(job.state, job.attempts) for job in queue.jobs(tx)]

    def effects(self) -> list[int]:
        return [int(fence) for (fence,) in rows(self.desk, "SELECT fence FROM effect ORDER BY job")]


@pytest.fixture(scope="module")
def urls() -> dict[str, str]:
    return {}


@pytest.fixture(scope="module")
def url_of(request: pytest.FixtureRequest, urls: dict[str, str]) -> Any:
    def url_of(database: str) -> str:
        if database not in urls:
            urls[database] = queue_url(request, database)
        return urls[database]

    return url_of


@pytest.fixture(params=BLOCKING)
def source(request: pytest.FixtureRequest, url_of: Any) -> Iterator[Source]:
    database, _, kind = request.param.partition(" ")
    url = url_of(database)
    engine = sqlalchemy.create_engine(sqlalchemy_url(url))
    ways: dict[str, Any] = {
        "function": lambda: connect(url),
        "engine": engine,
        "session": sessionmaker(engine).begin,
        "django": django_alias(url),
        "autocommit": lambda: in_autocommit(connect(url)),
    }
    yield from prepared(url, database, ways[kind])
    engine.dispose()
    connections[url].close()


@pytest.fixture
def file(url_of: Any) -> Iterator[Source]:
    url = url_of("sqlite")
    yield from prepared(url, "sqlite", lambda: connect(url))


def prepared(url: str, database: str, way: Any) -> Iterator[Source]:
    desk = make_desk(PLAIN[database], url)
    clear(desk)
    yield Source(way, desk)
    desk.close()


def in_autocommit(connection: Any) -> Any:
    if isinstance(connection, sqlite3.Connection):
        connection.isolation_level = None
    elif isinstance(connection, psycopg.Connection):
        connection.autocommit = True
    else:
        connection.autocommit(True)
    return connection


def write(tx: Any, job: Job) -> None:
    """By whatever `tx` is."""
    statement = f"INSERT INTO effect (job, fence) VALUES ({job.id}, {job.fence})"
    if isinstance(tx, str):
        tx = connections[tx]
    if isinstance(tx, (sqlalchemy.Connection, Session)):
        tx.execute(sqlalchemy.text(statement))
        return
    cursor = tx.cursor()
    cursor.execute(statement)
    cursor.close()


def test_every_job_is_worked_off_inside_and_outside_transactions(source: Source) -> None:
    source.enqueue("good", "bad", "worse", "worse")

    def handle(tx: Any, job: Job) -> None:
        write(tx, job)
        if job.payload == "bad" and job.attempt == 1:
            raise ValueError("not yet")
        if job.payload == "worse":
            raise GiveUp("never")

    first = queue.run(handle, source.database, in_transaction=True, until_idle=True, concurrency=2)
    while ("ready", 1) in source.states():  # its pause is over after 10 ms
        second = queue.run(handle, source.database, in_transaction=True, until_idle=True)
        first.completed += second.completed
    assert (first.completed, first.failed, first.dead, first.refused) == (2, 3, 2, 0)
    assert source.states() == [("done", 1), ("done", 2), ("dead", 1), ("dead", 1)]
    assert source.effects() == [1, 2]  # what failed has written nothing
    seen: list[object] = []
    source.enqueue("outside")
    worked = queue.run(lambda job: seen.append(job.payload), source.database, until_idle=True)
    assert (worked.completed, seen) == (1, ["outside"])


def test_a_connection_of_django_that_is_too_old_is_renewed_between_two_jobs(
    file: Source, url_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker lives longer than a request, and Django looks after its connections only at requests."""
    file.enqueue("one", "two", "three")
    alias = django_alias(url_of("sqlite"))
    monkeypatch.setitem(connections.databases[alias], "CONN_MAX_AGE", None)
    used: list[Any] = []

    def handle(job: Job) -> None:
        used.append(connections[alias].connection)
        if job.payload == "two":
            connections[alias].close_at = 0.0  # its time was over long ago

    assert queue.run(handle, alias, until_idle=True).completed == 3
    assert used[0] is used[1]
    assert used[1] is not used[2]


@pytest.mark.parametrize("kind", ASYNC)
def test_every_job_is_worked_off_on_an_event_loop(kind: str, url_of: Any) -> None:
    asyncio.run(work_on_an_event_loop(kind, url_of))


async def work_on_an_event_loop(kind: str, url_of: Any) -> None:
    database, _, way = kind.partition(" ")
    url = url_of(database)
    places = prepared(url, database, None)
    source = next(places)
    source.enqueue("good", "bad")
    engine = create_async_engine(async_url(url))
    parts = sqlalchemy.make_url(url)
    login: dict[str, Any] = {"host": parts.host, "port": parts.port, "user": parts.username, "db": parts.database}
    ways: dict[str, Any] = {
        "psycopg": lambda: psycopg.AsyncConnection.connect(url),
        "engine": engine,
        "session": async_sessionmaker(engine).begin,
        "aiomysql": lambda: aiomysql.connect(**login),
        "asyncmy": lambda: asyncmy.connect(**login),
    }

    async def handle(tx: Any, job: Job) -> None:
        statement = f"INSERT INTO effect (job, fence) VALUES ({job.id}, {job.fence})"
        if hasattr(tx, "run_sync"):
            await tx.execute(sqlalchemy.text(statement))
        else:
            async with tx.cursor() as cursor:
                await cursor.execute(statement)
        if job.payload == "bad" and job.attempt == 1:
            raise ValueError("not yet")

    try:
        while ("done", 2) not in source.states():
            await queue.run_async(handle, ways[way], in_transaction=True, until_idle=True, concurrency=2)
        assert source.states() == [("done", 1), ("done", 2)]
        assert source.effects() == [1, 2]
        source.enqueue("outside")
        seen: list[object] = []

        async def note(job: Job) -> None:
            seen.append(job.payload)

        await queue.run_async(note, ways[way], until_idle=True)
        assert seen == ["outside"]
    finally:
        await engine.dispose()
        next(places, None)


def async_url(url: str) -> str:
    return (
        sqlalchemy_url(url).replace("sqlite://", "sqlite+aiosqlite://").replace("mariadb+pymysql", "mariadb+aiomysql")
    )


def test_a_run_that_is_cancelled_gives_its_job_back(url_of: Any) -> None:
    asyncio.run(cancel_a_run(url_of))


async def cancel_a_run(url_of: Any) -> None:
    url = url_of("postgresql")
    places = prepared(url, "postgresql", None)
    source = next(places)
    source.enqueue("long")
    begun = asyncio.Event()

    async def handle(_: Job) -> None:
        begun.set()
        await asyncio.Event().wait()

    run = asyncio.create_task(queue.run_async(handle, lambda: psycopg.AsyncConnection.connect(url)))
    await begun.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert source.states() == [("ready", 0)]
    next(places, None)


def test_a_claim_is_extended_as_long_as_its_handler_runs(url_of: Any) -> None:
    url = url_of("postgresql")
    places = prepared(url, "postgresql", lambda: connect(url))
    source = next(places)
    short = Queue("refunds", visibility="2s")
    source.enqueue("long")
    ends: list[Any] = []

    def handle(job: Job) -> None:
        while len(ends) < 3:  # three times later than before
            with source.desk.begin() as tx:
                ((due,),) = source.desk.run(tx, f"SELECT due_at FROM leasehold_queue WHERE id = {job.id}")
            if due not in ends:
                ends.append(due)

    worked = short.run(handle, source.database, until_idle=True)
    assert (worked.completed, worked.refused) == (1, 0)
    assert ends == sorted(ends)
    assert source.states() == [("done", 1)]
    next(places, None)


def test_a_run_ends_when_it_is_told_to_and_no_signal_handler_is_left(file: Source) -> None:
    import signal

    before = signal.getsignal(signal.SIGTERM)
    stops: list[Any] = []
    worked: list[Any] = []
    thread = threading.Thread(
        target=lambda: worked.append(queue.run(lambda _: stops[0](), file.database, stop=stops.append, poll=SOON))
    )
    thread.start()
    file.enqueue("one")
    thread.join()
    assert worked[0].completed == 1
    assert queue.run(lambda _: None, file.database, until_idle=True).completed == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_error_that_no_waiting_heals_ends_the_run(file: Source) -> None:
    with pytest.raises(ConfigurationError, match="PostgreSQL"):
        Queue("a", schema="b").run(lambda _: None, file.database, until_idle=True)
    with pytest.raises(ConfigurationError, match="async def"):
        queue.run(asyncio.sleep, file.database)
    with pytest.raises(ConfigurationError, match="can serve only one thread"):
        queue.run(print, file.database())
    with pytest.raises(ConfigurationError, match="concurrency"):
        queue.run(print, file.database, concurrency=0)


def test_the_wrong_face_is_refused(file: Source) -> None:
    connection = file.database()
    for mistake in (
        lambda: queue.run_async(print, file.database),
        lambda: queue.run_async(asyncio.sleep, "default"),
        lambda: queue.enqueue_async(connection, 1),
    ):
        with pytest.raises(ConfigurationError, match="async"):
            asyncio.run(mistake())
    connection.close()


def test_completed_jobs_are_removed_after_they_were_kept(file: Source) -> None:
    forgetful = Queue("refunds", keep=0)
    file.enqueue("one")
    forgetful.run(lambda _: None, file.database, until_idle=True)
    done = threading.Event()

    def look(_: Job) -> None:
        """In the second run the keeper removes what the first has done."""
        while len(file_states()) > 1:
            done.wait(0.01)

    def file_states() -> list[Any]:
        connection = file.database()
        found = connection.execute("SELECT 1 FROM leasehold_queue").fetchall()
        connection.close()
        return list(found)

    file.enqueue("two")
    forgetful.run(look, file.database, until_idle=True)
    assert file.states() == [("done", 1)]


def test_the_worker_tries_again_when_the_database_does_not_answer(
    url_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Connections that are cut while jobs run: claims and answers are repeated on new ones."""
    url = url_of("postgresql")
    places = prepared(url, "postgresql", lambda: connect(url))
    source = next(places)
    source.enqueue(*range(6))
    cut: set[int] = set()

    def handle(job: Job) -> None:
        if job.payload in (1, 4) and job.payload not in cut:
            cut.add(job.payload)
            with source.desk.begin() as tx:
                source.desk.run(
                    tx,
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE pid <> pg_backend_pid() AND datname = current_database()",
                )

    with caplog.at_level(logging.WARNING):
        worked = queue.run(handle, source.database, until_idle=True)
    assert (worked.completed, worked.failed) == (6, 0)
    assert source.states() == [("done", 1)] * 6
    assert "it tries again" in caplog.text
    next(places, None)
