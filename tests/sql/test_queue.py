"""A queue means the same in every database, and over every kind of connection."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from leasehold import Backoff
from leasehold.errors import ConfigurationError, KeyReused, RetryTransaction, StaleFence
from leasehold.sql import GiveUp, Queue, find_job, guard, list_queues, queue_schema
from tests.sql.desks import make_desk
from tests.sql.queue_places import DATABASES, EVERY_QUEUE_DESK, PLAIN, clear, let_all_be_due, queue_url

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from leasehold.sql import Job, JobInfo
    from tests.sql.desks import Desk
    from verification.lab.mariadb import MariadbServer
    from verification.lab.postgres import PostgresServer

HOSTILE = [
    "a'b",
    'a"b',
    "a;DROP TABLE effect",
    "a\\",
    "%s %(key)s :key ? $1 {eq}",
    "a\nb",
    "é\u2028😀",
    "--",
    " a ",
    "A",
]
queue = Queue("refunds", max_attempts=3)


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


@pytest.fixture(params=EVERY_QUEUE_DESK)
def any_desk(request: pytest.FixtureRequest, url_of: Any) -> Iterator[Desk]:
    database, _, kind = request.param.partition(" ")
    yield from emptied(make_desk(kind, url_of(database)))


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def desk(database: str, url_of: Any) -> Iterator[Desk]:
    yield from emptied(make_desk(PLAIN[database], url_of(database)))


@pytest.fixture
def other(database: str, url_of: Any) -> Iterator[Desk]:
    other = make_desk(PLAIN[database], url_of(database))
    yield other
    other.close()


def emptied(desk: Desk) -> Iterator[Desk]:
    clear(desk)
    yield desk
    desk.close()


def enqueue(desk: Desk, payload: object, of: Queue = queue, **words: Any) -> int:
    with desk.begin() as tx:
        return of.enqueue(tx, payload, **words)


def claim(desk: Desk, of: Queue = queue, **words: Any) -> list[Job]:
    with desk.begin() as tx:
        return of.claim(tx, **words)


def look(desk: Desk, number: int, of: Queue = queue) -> JobInfo:
    with desk.begin() as tx:
        found = of.job(tx, number)
    assert found is not None
    return found


def test_the_life_of_a_job_over_every_kind_of_connection(any_desk: Desk) -> None:
    desk = any_desk
    payload = {"payment": 17, "note": "für 5% 😀"}
    with desk.begin() as tx:
        number = queue.enqueue(tx, payload, key="refund-17")
        assert queue.enqueue(tx, payload, key="refund-17") == number
    assert enqueue(desk, payload, key="refund-17") == number
    (job,) = claim(desk)
    assert (job.id, job.payload, job.key, job.fence, job.attempt) == (number, payload, "refund-17", 1, 1)
    assert claim(desk) == []
    with desk.begin() as tx:
        pause = queue.fail(tx, job, ValueError("the bank is closed: é"), delay="1h")
    assert pause == 3600
    info = look(desk, number)
    assert (info.state, info.attempts, info.last_error) == ("ready", 1, "ValueError: the bank is closed: é")
    assert info.due_in is not None
    assert 3000 < info.due_in <= 3600
    let_all_be_due(desk)
    (again,) = claim(desk)
    assert (again.fence, again.attempt, again.last_error) == (2, 2, "ValueError: the bank is closed: é")
    with desk.begin() as tx:
        queue.extend(tx, again, "1h")
        desk.run(tx, f"INSERT INTO effect (job, fence) VALUES ({again.id}, {again.fence})")
        queue.complete(tx, again)
    with pytest.raises(StaleFence), desk.begin() as tx:
        queue.complete(tx, job)
    assert look(desk, number).state == "done"
    with desk.begin() as tx:
        (counts,) = list_queues(tx)
        assert (counts.queue, counts.done, counts.ready) == ("refunds", 1, 0)
        assert queue.purge(tx, older_than=0) == 1
    with desk.begin() as tx:
        assert queue.jobs(tx) == []


def test_a_job_exists_only_if_its_transaction_was_committed(desk: Desk, other: Desk) -> None:
    class Undo(Exception):
        pass

    with pytest.raises(Undo), desk.begin() as tx:
        queue.enqueue(tx, 1)
        raise Undo
    assert claim(other) == []


def test_jobs_are_claimed_by_due_time_and_never_before(desk: Desk) -> None:
    enqueue(desk, "later", delay="1h")
    enqueue(desk, "first")
    enqueue(desk, "second")
    assert [job.payload for job in claim(desk, limit=5)] == ["first", "second"]
    let_all_be_due(desk)
    assert [job.payload for job in claim(desk, limit=5)] == ["later", "first", "second"]


def test_a_claim_is_nobody_elses_until_its_visibility_is_over(desk: Desk, other: Desk) -> None:
    enqueue(desk, 1)
    (late,) = claim(desk)
    assert claim(other) == []
    let_all_be_due(desk)
    (now,) = claim(other)
    assert (late.fence, now.fence) == (1, 2)
    verbs: list[tuple[Any, ...]] = [
        (queue.complete,),
        (queue.fail, "too late"),
        (queue.extend,),
        (queue.release,),
    ]
    for verb, *words in verbs:
        with pytest.raises(StaleFence) as refusal, desk.begin() as tx:
            verb(tx, late, *words)
        assert (refusal.value.fence, refusal.value.highest, refusal.value.name) == (1, 2, "refunds")
    info = look(desk, now.id)
    assert (info.state, info.fence, info.last_error) == ("claimed", 2, None)
    with other.begin() as tx:
        queue.complete(tx, now)


def test_two_that_claim_at_the_same_time_get_different_jobs(desk: Desk, other: Desk, database: str) -> None:
    enqueue(desk, 1)
    enqueue(desk, 2)
    with desk.begin() as tx:
        (one,) = queue.claim(tx)
        if database == "sqlite":  # one writer at a time: the second is told to come again
            with pytest.raises(RetryTransaction), other.begin() as second:
                queue.claim(second)
        else:
            with other.begin() as second:
                (two,) = queue.claim(second)
            assert (one.payload, two.payload) == (1, 2)
    assert [job.payload for job in claim(other, limit=5)] == ([2] if database == "sqlite" else [])


def test_a_late_answer_of_the_last_claim_counts(desk: Desk) -> None:
    """Its visibility is over, and nobody has taken the job: to do it again would help nobody."""
    number = enqueue(desk, 1)
    (job,) = claim(desk)
    let_all_be_due(desk)
    with desk.begin() as tx:
        queue.complete(tx, job)
    assert look(desk, number).state == "done"


def test_the_same_answer_twice_is_one(desk: Desk) -> None:
    """The reply to the first may have been lost."""
    enqueue(desk, 1)
    (job,) = claim(desk)
    for _ in range(2):
        with desk.begin() as tx:
            queue.complete(tx, job)
    with pytest.raises(StaleFence, match="this claim of it is over: the job is done"), desk.begin() as tx:
        queue.fail(tx, job, "no")
    assert look(desk, job.id).state == "done"


def test_a_claim_that_was_given_back_does_not_count(desk: Desk) -> None:
    enqueue(desk, 1)
    (job,) = claim(desk)
    with desk.begin() as tx:
        queue.release(tx, job)
    (again,) = claim(desk)
    assert (again.attempt, again.fence) == (1, 2)


def test_after_the_last_attempt_a_job_is_dead_and_can_be_retried(desk: Desk) -> None:
    number = enqueue(desk, 1)
    pauses = []
    for _ in range(3):
        let_all_be_due(desk)
        (job,) = claim(desk)
        with desk.begin() as tx:
            pauses.append(queue.fail(tx, job, RuntimeError("no")))
    assert [pause is None for pause in pauses] == [False, False, True]
    let_all_be_due(desk)
    assert claim(desk) == []
    info = look(desk, number)
    assert (info.state, info.attempts, info.last_error, info.due_in) == ("dead", 3, "RuntimeError: no", None)
    with desk.begin() as tx:
        assert queue.retry_dead(tx, number + 1) == 0
        assert queue.retry_dead(tx) == 1
        assert queue.retry_dead(tx, number) == 0
    (job,) = claim(desk)
    assert (job.attempt, job.fence, job.last_error) == (1, 4, "RuntimeError: no")
    with desk.begin() as tx:
        assert queue.fail(tx, job, GiveUp("the account is closed")) is None
    assert look(desk, number).last_error == "GiveUp: the account is closed"
    with desk.begin() as tx:
        assert queue.purge(tx, older_than=0) == 0  # those that were completed
        assert queue.purge(tx, dead=True) == 0  # those that are dead for long
        assert queue.purge(tx, dead=True, older_than=0) == 1


def test_a_job_whose_workers_vanish_is_dead_in_the_end(desk: Desk) -> None:
    """What kills its worker each time would otherwise do so for ever."""
    poison, good = enqueue(desk, "poison"), enqueue(desk, "good", delay="1h")
    for attempt in range(1, 4):
        with desk.begin() as tx:
            desk.run(tx, f"UPDATE leasehold_queue SET due_at = enqueued_at WHERE id = {poison}")
        (job,) = claim(desk)
        assert job.attempt == attempt
    let_all_be_due(desk)
    (job,) = claim(desk)
    assert job.id == good
    info = look(desk, poison)
    assert (info.state, info.fence) == ("dead", 3)
    assert info.last_error is not None
    assert "the worker of attempt 3 vanished" in info.last_error


def test_pauses_grow_with_full_jitter() -> None:
    steep = Queue("steep", backoff=Backoff(("1s",), factor=10, longest="1000s", jitter="full"), max_attempts=None)
    job = make_job(attempt=3)
    pauses = [steep.pause_after(job, "no") or 0 for _ in range(200)]
    assert 0 <= min(pauses) < 30
    assert 70 < max(pauses) <= 100
    assert steep.pause_after(make_job(attempt=1000), "no") is not None


def make_job(attempt: int) -> Job:
    from leasehold.sql import Job

    return Job(1, "steep", None, None, fence=attempt, attempt=attempt, last_error=None, age=0.0)


@pytest.mark.parametrize("name", HOSTILE)
def test_any_text_is_a_name_and_a_key_of_its_own(desk: Desk, name: str) -> None:
    hostile = Queue(name)
    for key in HOSTILE:
        enqueue(desk, key, hostile, key=key)
        enqueue(desk, key, key=key)
    assert sorted(job.payload for job in claim(desk, hostile, limit=100)) == sorted(HOSTILE)
    with desk.begin() as tx:
        assert {counts.queue: counts.ready + counts.claimed for counts in list_queues(tx)} == {
            name: len(HOSTILE),
            "refunds": len(HOSTILE),
        }


def test_names_that_look_alike_are_different(desk: Desk) -> None:
    alike = ["a", "A", "a ", "é", "e\u0301", "ä", "a\u0308"]
    numbers = {enqueue(desk, key, key=key) for key in alike}
    assert len(numbers) == len(alike)


def test_a_key_that_comes_again_with_other_work_is_refused(desk: Desk) -> None:
    number = enqueue(desk, {"a": 1, "b": 2}, key="k")
    assert enqueue(desk, {"b": 2, "a": 1}, key="k") == number
    with pytest.raises(KeyReused) as refusal, desk.begin() as tx:
        queue.enqueue(tx, {"a": 2}, key="k")
    assert refusal.value.key == "k"
    (job,) = claim(desk)
    with desk.begin() as tx:
        queue.complete(tx, job)
    assert enqueue(desk, {"a": 1, "b": 2}, key="k") == number  # it was done, and is known for as long as it is kept
    assert claim(desk) == []


def test_what_is_kept_of_an_error_is_bounded_and_can_be_stored(desk: Desk) -> None:
    enqueue(desk, 1)
    (job,) = claim(desk)
    with desk.begin() as tx:
        queue.fail(tx, job, ValueError("\0\ud800" + "x" * 5000))
    kept = look(desk, job.id).last_error
    assert kept is not None
    assert kept.startswith("ValueError: \\x00\\ud800xxx")
    assert len(kept) == 1000


def test_questions_make_no_table(tmp_path: Path, postgres: PostgresServer, mariadb: MariadbServer) -> None:
    del mariadb
    postgres.make_database("no_queue")
    with sqlite3.connect(tmp_path / "empty.db") as file, postgres.connect("no_queue") as server:
        for tx in (file, server):
            assert list_queues(tx) == []
            assert queue.jobs(tx) == []
            assert find_job(tx, 1) is None
        assert file.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)


def test_the_table_is_made_in_the_transaction_but_never_in_mysql(
    tmp_path: Path, postgres: PostgresServer, mariadb: MariadbServer
) -> None:
    file = sqlite3.connect(tmp_path / "new.db")
    queue.enqueue(file, 1)
    file.rollback()
    assert list_queues(file) == []
    postgres.make_database("new_queue")
    with psycopg.connect(postgres.url("new_queue")) as server:
        queue.enqueue(server, 1)
        server.rollback()
        assert list_queues(server) == []
    mariadb.make_database("new_queue")
    with mariadb.connect("new_queue", autocommit=False) as connection:
        assert list_queues(connection) == []
        with pytest.raises(ConfigurationError, match=r"queue\.create_tables"):
            queue.enqueue(connection, 1)
        connection.begin()
        with pytest.raises(ConfigurationError, match="would commit that first"):
            queue.create_tables(connection)
        connection.rollback()
        queue.create_tables(connection)
        queue.create_tables(connection)
        queue.enqueue(connection, 1)
        connection.commit()
        assert list_queues(connection)[0].ready == 1


def test_what_cannot_be_is_refused_before_anything_is_sent(desk: Desk, database: str) -> None:
    mistakes: list[dict[str, Any]] = [
        {"max_attempts": 0},
        {"visibility": 0},
        {"backoff": Backoff(tries=3)},
        {"backoff": 3},
        {"keep": -1},
    ]
    for words in mistakes:
        with pytest.raises(ConfigurationError):
            Queue("a", **words)
    with pytest.raises(ConfigurationError):
        Queue("")
    with desk.begin() as tx:
        for payload in (object(), float("nan"), "x" * 70_000):
            with pytest.raises(ConfigurationError):
                queue.enqueue(tx, payload)
        with pytest.raises(ConfigurationError):
            queue.enqueue(tx, 1, delay=-1)
        with pytest.raises(ConfigurationError):
            queue.claim(tx, limit=0)
        if database != "postgresql":
            with pytest.raises(ConfigurationError, match="PostgreSQL"):
                Queue("a", schema="b").enqueue(tx, 1)
    with pytest.raises(ConfigurationError, match="no queues in 'oracle'"):
        queue_schema("oracle")


def test_outside_a_transaction_nothing_is_enqueued_or_claimed(
    tmp_path: Path, postgres: PostgresServer, mariadb: MariadbServer
) -> None:
    for connection in (
        sqlite3.connect(tmp_path / "a.db", isolation_level=None),
        postgres.connect(),
        mariadb.connect(),
    ):
        with connection:
            with pytest.raises(ConfigurationError, match="outside a transaction"):
                queue.enqueue(connection, 1)
            with pytest.raises(ConfigurationError, match="outside a transaction"):
                queue.claim(connection)


@pytest.mark.parametrize("database", ["postgresql", "sqlite"])
def test_the_fence_of_a_claim_guards_tables_of_the_users_own(desk: Desk) -> None:
    enqueue(desk, 1)
    (late,) = claim(desk)
    let_all_be_due(desk)
    (now,) = claim(desk)
    with desk.begin() as tx:
        guard(tx, now.fence, resource=now.resource)
    with pytest.raises(StaleFence), desk.begin() as tx:
        guard(tx, late.fence, resource=late.resource)


def test_an_operator_finds_a_job_by_its_number(desk: Desk) -> None:
    number = enqueue(desk, 1)
    enqueue(desk, 2, Queue("mails"))
    with desk.begin() as tx:
        found = find_job(tx, number)
        assert found is not None
        assert (found.queue, found.payload, found.state) == ("refunds", 1, "ready")
        assert Queue("mails").job(tx, number) is None
        assert [job.payload for job in queue.jobs(tx, state="ready")] == [1]
        assert queue.jobs(tx, state="dead") == []


def test_a_schema_of_postgresql_has_queues_of_its_own(postgres: PostgresServer) -> None:
    postgres.make_database("queue_schemas")
    with postgres.connect("queue_schemas") as server:
        server.execute("CREATE SCHEMA a")
        server.execute('CREATE SCHEMA "b%c"')
        for name in ("a", "b%c"):
            with server.transaction():
                Queue("q", schema=name).enqueue(server, name)
        for name in ("a", "b%c"):
            with server.transaction():
                assert [job.payload for job in Queue("q", schema=name).claim(server, limit=9)] == [name]
                assert [counts.claimed for counts in list_queues(server, schema=name)] == [1]
    with psycopg.connect(postgres.url("queue_schemas")) as server:
        with pytest.raises(ConfigurationError, match="in each of the schemas"):
            queue.enqueue(server, 1)
