"""Jobs of a queue step by step, on a file of SQLite in memory whose clock is moved by moving the rows."""

from __future__ import annotations

import asyncio
import os
import socket
import sqlite3
import types
from typing import TYPE_CHECKING, Any

import aiosqlite
import pytest

from leasehold import Backoff
from leasehold._runtimes.threads import run
from leasehold.errors import ConfigurationError, KeyReused, RetryTransaction, StaleFence
from leasehold.sql import (
    GiveUp,
    Job,
    Queue,
    QueueCounts,
    find_job,
    find_job_async,
    list_queues,
    list_queues_async,
)
from leasehold.sql.queue import job as job_module
from leasehold.sql.queue import postgresql, sqlite
from leasehold.sql.queue.job import Rules, error_text, refused_answer, vanished, write_payload
from leasehold.sql.queue.queue import BACKOFF, POLL
from leasehold.sql.queue.rows import Rows, _counts
from leasehold.sql.wires import wire_of

if TYPE_CHECKING:
    from collections.abc import Iterator

QUEUE = Queue(
    "mails", visibility="30s", max_attempts=3, backoff=Backoff(("10s",), factor=2, longest="1h", jitter="none")
)


@pytest.fixture
def file() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    QUEUE.create_tables(connection)
    yield connection
    connection.close()


def later(file: sqlite3.Connection, seconds: float, *numbers: int) -> None:
    """As if so much time had passed for these jobs, or for all."""
    moved = ", ".join(f"{column} = {column} - {seconds}" for column in ("due_at", "enqueued_at", "changed_at"))
    which = f"WHERE id IN ({', '.join(map(str, numbers))})" if numbers else ""
    file.execute(f"UPDATE leasehold_queue SET {moved} {which}")


def look(file: sqlite3.Connection, number: int) -> Any:
    found = find_job(file, number)
    assert found is not None
    return found


def near(seconds: float | None) -> Any:
    """Give or take what the test itself needs."""
    return pytest.approx(seconds, abs=300)


def test_the_name_of_a_worker_on_a_host_with_a_long_name_fits_its_column(
    file: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "a" * 253 + "-host")
    number = QUEUE.enqueue(file, 1)
    QUEUE.claim(file)
    assert look(file, number).worker == "a" * 253 + "-h"
    monkeypatch.setattr(socket, "gethostname", lambda: "a" * 240)
    QUEUE.enqueue(file, 2)
    QUEUE.claim(file)
    assert look(file, number + 1).worker == f"{'a' * 240}:{os.getpid()}"


def test_a_job_tells_its_times_and_its_worker(file: sqlite3.Connection) -> None:
    number = QUEUE.enqueue(file, 1, delay="2h")
    info = look(file, number)
    assert (info.state, info.fence, info.attempts, info.worker, info.last_error) == ("ready", 0, 0, None, None)
    assert (info.due_in, info.age, info.changed) == (near(7200), near(0), near(0))
    later(file, 90_000)
    (job,) = QUEUE.claim(file)
    assert job.age == near(90_000)
    info = look(file, number)
    assert (info.state, info.fence, info.attempts) == ("claimed", 1, 1)
    assert info.worker == f"{socket.gethostname()}:{os.getpid()}"[:255]
    assert (info.due_in, info.age, info.changed) == (near(30), near(90_000), near(0))
    later(file, 5_000)
    QUEUE.extend(file, job, "3h")
    info = look(file, number)
    assert (info.state, info.due_in, info.changed) == ("claimed", near(10_800), near(5_000))
    QUEUE.complete(file, job)
    info = look(file, number)
    assert (info.state, info.due_in, info.changed) == ("done", None, near(0))


def test_a_claim_lasts_as_long_as_it_asked_for(file: sqlite3.Connection) -> None:
    numbers = [QUEUE.enqueue(file, each) for each in range(3)]
    QUEUE.claim(file)
    QUEUE.claim(file, visibility="5h")
    (third,) = QUEUE.claim(file)
    QUEUE.extend(file, third)
    assert [look(file, number).due_in for number in numbers] == [near(30), near(18_000), near(30)]
    later(file, 400)
    assert [job.id for job in QUEUE.claim(file, limit=9)] == [numbers[0], numbers[2]]


def test_jobs_are_claimed_the_oldest_first_and_by_number_if_they_are_as_old(file: sqlite3.Connection) -> None:
    for payload in "abcd":
        QUEUE.enqueue(file, payload)
    file.execute("UPDATE leasehold_queue SET due_at = 7 WHERE id > 2")
    assert [job.payload for job in QUEUE.claim(file, limit=3)] == ["c", "d", "a"]


def test_a_failed_job_comes_again_after_its_pause_with_its_error(file: sqlite3.Connection) -> None:
    number = QUEUE.enqueue(file, 1)
    for pause in (10.0, 20.0):
        (job,) = QUEUE.claim(file)
        later(file, 100)
        assert QUEUE.fail(file, job, ValueError("no")) == pause
        info = look(file, number)
        assert (info.state, info.due_in, info.changed, info.last_error) == (
            "ready", near(pause), near(0), "ValueError: no",
        )  # fmt: skip
        assert info.due_in > 0
        assert QUEUE.claim(file) == []
        later(file, pause + 1)
    (job,) = QUEUE.claim(file)
    assert QUEUE.fail(file, job, "over") is None
    info = look(file, number)
    assert (info.state, info.due_in, info.last_error, info.attempts, info.fence) == ("dead", None, "over", 3, 3)


def test_a_job_that_comes_again_is_as_old_as_when_it_was_enqueued(file: sqlite3.Connection) -> None:
    QUEUE.enqueue(file, 1)
    (job,) = QUEUE.claim(file)
    later(file, 90_000)
    QUEUE.fail(file, job, "no", delay=0)
    (job,) = QUEUE.claim(file)
    assert (job.age, job.attempt, job.last_error) == (near(90_000), 2, "no")
    later(file, 5_000)
    QUEUE.release(file, job)
    (job,) = QUEUE.claim(file)
    assert (job.age, job.attempt, job.fence) == (near(95_000), 2, 3)


def test_a_payload_that_is_written_in_another_order_is_the_same_payload(file: sqlite3.Connection) -> None:
    number = QUEUE.enqueue(file, {"a": 1, "b": 2.0}, key="k")
    assert QUEUE.enqueue(file, {"b": 2, "a": 1}, key="k") == number
    for other in ({"a": 1}, {"a": 2, "b": 1}, ["a", "b"]):
        with pytest.raises(KeyReused) as reused:
            QUEUE.enqueue(file, other, key="k")
        assert (reused.value.name, reused.value.key) == ("mails", "k")


def test_a_job_that_was_released_is_due_at_once_and_has_its_attempt_again(file: sqlite3.Connection) -> None:
    number = QUEUE.enqueue(file, 1)
    for fence in (1, 2):
        (job,) = QUEUE.claim(file)
        assert (job.fence, job.attempt) == (fence, 1)
        QUEUE.release(file, job)
    info = look(file, number)
    assert (info.state, info.attempts, info.fence, info.due_in) == ("ready", 0, 2, near(0))


def test_jobs_whose_workers_vanished_are_buried_until_one_is_found_that_is_not(file: sqlite3.Connection) -> None:
    for payload in range(4):
        QUEUE.enqueue(file, payload)
    file.execute("UPDATE leasehold_queue SET attempts = 3, fence = 7, state = 'claimed', last_error = 'x' WHERE id < 4")
    (job,) = QUEUE.claim(file)
    assert (job.payload, job.fence, job.attempt) == (3, 1, 1)
    infos = QUEUE.jobs(file, state="dead")
    assert [(info.id, info.due_in, info.fence) for info in infos] == [(1, None, 7), (2, None, 7), (3, None, 7)]
    assert {info.last_error for info in infos} == {vanished(3, "x")}
    assert QUEUE.claim(file) == []


def test_a_queue_without_a_limit_of_attempts_tries_for_ever(file: sqlite3.Connection) -> None:
    patient = Queue("mails", max_attempts=None)
    patient.enqueue(file, 1)
    file.execute("UPDATE leasehold_queue SET attempts = 100000")
    (job,) = patient.claim(file)
    assert patient.fail(file, job, "no") is not None
    assert patient.pause_after(job, GiveUp("no")) is None


def test_dead_jobs_are_retried_those_that_died_first_before_the_others(file: sqlite3.Connection) -> None:
    numbers = [QUEUE.enqueue(file, each) for each in range(3)]
    other = Queue("other").enqueue(file, 1)
    file.execute("UPDATE leasehold_queue SET state = 'dead', due_at = NULL, attempts = 3, fence = 5")
    later(file, 50, numbers[1])
    assert QUEUE.retry_dead(file, limit=1) == 1
    info = look(file, numbers[1])
    assert (info.state, info.attempts, info.fence, info.due_in, info.changed) == ("ready", 0, 5, near(0), near(0))
    assert QUEUE.retry_dead(file, other) == 0, "it is of another queue"
    assert QUEUE.retry_dead(file) == 2
    assert look(file, other).state == "dead"
    assert [job.attempt for job in QUEUE.claim(file, limit=9)] == [1, 1, 1]
    assert QUEUE.retry_dead(file, numbers[0]) == 0, "it is claimed"


def test_what_is_over_is_removed_after_it_was_kept_the_oldest_first(file: sqlite3.Connection) -> None:
    kept = Queue("mails", keep="1h")
    for payload in range(4):
        kept.enqueue(file, payload)
    Queue("other").enqueue(file, 1)
    file.execute("UPDATE leasehold_queue SET state = 'done', due_at = NULL")
    later(file, 3_500)
    assert kept.purge(file) == 0
    later(file, 4_000, 1, 3)
    later(file, 1_000, 3)
    file.execute("UPDATE leasehold_queue SET state = 'dead' WHERE id = 4")
    assert kept.purge(file, limit=1) == 1
    assert [info.id for info in kept.jobs(file)] == [1, 2, 4], "the oldest went first"
    assert (kept.purge(file), kept.purge(file, older_than="2h")) == (1, 0)
    assert kept.purge(file, older_than="30m") == 1
    assert (kept.purge(file, dead=True), kept.purge(file, dead=True, older_than=0)) == (0, 1)
    assert [info.queue for info in Queue("other").jobs(file)] == ["other"]


def test_jobs_of_other_queues_do_not_use_up_what_an_operator_may_change_at_once(file: sqlite3.Connection) -> None:
    older = [Queue("other").enqueue(file, each) for each in range(3)]
    ours = [QUEUE.enqueue(file, each) for each in range(3)]
    file.execute("UPDATE leasehold_queue SET state = 'dead', due_at = NULL, attempts = 3")
    later(file, 500_000, *older)
    later(file, 400_000, *ours)
    assert QUEUE.retry_dead(file, limit=2) == 2
    assert [look(file, number).state for number in ours] == ["ready", "ready", "dead"]
    file.execute("UPDATE leasehold_queue SET state = 'done', due_at = NULL")
    later(file, 400_000, *ours)
    assert QUEUE.purge(file, limit=2) == 2
    assert QUEUE.purge(file, limit=2) == 1
    assert [info.id for info in Queue("other").jobs(file)] == older


def test_questions_about_all_queues_are_asked_where_was_said(file: sqlite3.Connection) -> None:
    """A file has no schemas, and says so of the one that it was asked for."""
    number = QUEUE.enqueue(file, 1)
    assert look(file, number).payload == 1
    for question in (lambda: find_job(file, number, schema="s"), lambda: list_queues(file, schema="s")):
        with pytest.raises(ConfigurationError, match="schema= is for PostgreSQL"):
            question()

    async def awaited() -> None:
        async with aiosqlite.connect(":memory:") as connection:
            assert await list_queues_async(connection) == []
            assert await find_job_async(connection, 1) is None
            for asked in (list_queues_async(connection, schema="s"), find_job_async(connection, 1, schema="s")):
                with pytest.raises(ConfigurationError, match="schema= is for PostgreSQL"):
                    await asked

    asyncio.run(awaited())


def test_one_job_is_removed_by_its_number_only_if_it_is_over_and_of_this_queue(file: sqlite3.Connection) -> None:
    done, dead, ready = (QUEUE.enqueue(file, each) for each in range(3))
    other = Queue("other").enqueue(file, 1)
    file.execute(f"UPDATE leasehold_queue SET state = 'done', due_at = NULL WHERE id IN ({done}, {other})")
    file.execute(f"UPDATE leasehold_queue SET state = 'dead', due_at = NULL WHERE id = {dead}")
    assert [QUEUE.purge(file, number) for number in (dead, ready, other, done)] == [0, 0, 0, 1]
    assert QUEUE.purge(file, dead, dead=True) == 1
    assert find_job(file, done) is None
    assert look(file, other).state == "done"


def test_jobs_are_listed_by_number_and_no_more_than_was_asked(file: sqlite3.Connection) -> None:
    for payload in range(5):
        QUEUE.enqueue(file, payload, delay=100 - payload)
    assert [info.id for info in QUEUE.jobs(file, limit=3)] == [1, 2, 3]
    assert QUEUE.job(file, 9) is None
    assert find_job(file, 9) is None
    only = QUEUE.job(file, 2)
    assert only is not None
    assert only.payload == 1
    for number in range(120):
        QUEUE.enqueue(file, number)
    assert len(QUEUE.jobs(file)) == 100


def test_queues_are_counted_by_state_and_by_what_waits_the_longest(file: sqlite3.Connection) -> None:
    for name in ("b", "a"):
        for state in ("ready", "ready", "claimed", "done", "done", "done", "dead", "dead", "dead", "dead"):
            number = Queue(name).enqueue(file, 1)
            file.execute(f"UPDATE leasehold_queue SET state = '{state}' WHERE id = {number}")
    Queue("a").enqueue(file, 1, delay="1h")
    later(file, 10_000, 1)
    later(file, 20_000, 12)
    a, b = list_queues(file)
    assert (a.queue, a.ready, a.delayed, a.claimed, a.done, a.dead) == ("a", 2, 1, 1, 3, 4)
    assert (b.queue, b.ready, b.delayed, b.claimed, b.done, b.dead) == ("b", 2, 0, 1, 3, 4)
    assert (a.lag, b.lag) == (near(20_000), near(10_000))


def test_counts_are_added_up_whatever_the_database_calls_them() -> None:
    rows: list[Any] = [
        (b"q", b"ready", 0, 2, 1.5),
        ("q", "ready", 1, 3, -5),
        ("q", "claimed", 0, 1, 9),
        ("q", "claimed", 1, 4, 2),
    ]
    rows.append(("a", "dead", 0, 1, None))
    assert _counts(rows) == [QueueCounts("a", dead=1), QueueCounts("q", ready=2, delayed=3, claimed=5, lag=1.5)]


def test_a_key_is_known_in_its_own_queue_until_its_job_is_removed(file: sqlite3.Connection) -> None:
    other = Queue("other").enqueue(file, 2, key="k")
    first = QUEUE.enqueue(file, {"a": 1}, key="k")
    assert first > other
    assert QUEUE.enqueue(file, {"a": 1}, key="k", delay="1h") == first
    with pytest.raises(KeyReused, match="'k' of the queue 'mails' belongs to a job with another payload") as caught:
        QUEUE.enqueue(file, 2, key="k")
    assert (caught.value.name, caught.value.key) == ("mails", "k")
    (job,) = QUEUE.claim(file)
    assert (job.key, job.resource) == ("k", f"queue:mails:{first}")
    QUEUE.complete(file, job)
    QUEUE.purge(file, first)
    assert QUEUE.enqueue(file, 2, key="k") > first, "numbers are never given twice"


def test_a_table_that_is_missing_is_made_and_the_work_is_done_then() -> None:
    file = sqlite3.connect(":memory:")
    assert (list_queues(file), QUEUE.jobs(file)) == ([], [])
    assert QUEUE.enqueue(file, 1) == 1
    assert len(QUEUE.claim(file)) == 1
    with pytest.raises(sqlite3.OperationalError, match="no such column"):
        file.executescript("DROP TABLE leasehold_queue; CREATE TABLE leasehold_queue (id INTEGER)")
        QUEUE.claim(file)
    file.close()


def test_a_key_that_is_never_there_when_it_is_looked_for_is_told() -> None:
    asked: list[str] = []

    async def insert(rows: Any, values: Any) -> None:
        """Somebody removes the job each time."""
        asked.append("insert")

    dialect: Any = types.ModuleType("gone")
    dialect.__dict__.update({**vars(sqlite), "insert": insert})
    with sqlite3.connect(":memory:") as file:
        QUEUE.create_tables(file)
        rows = Rows(wire_of(file), dialect, QUEUE._rules)
        with pytest.raises(ConfigurationError, match="'k' is removed as often as it is looked for"):
            run(rows.enqueue("1", "k", 0.0))
        assert asked == ["insert"] * 3


# --- without a database


def a_job(**facts: Any) -> Job:
    words: dict[str, Any] = {"id": 7, "queue": "q", "key": None, "payload": 1, "fence": 3, "attempt": 2}
    return Job(**{**words, "last_error": None, "age": 0.0, **facts})


@pytest.mark.parametrize(
    ("state", "fence", "wanted", "words"),
    [
        ("done", 3, "done", None),
        ("ready", 3, "ready", None),
        ("done", 3, "dead", "this claim of it is over: the job is done"),
        ("claimed", 4, "done", "it was claimed again, with fence 4"),
        ("done", 4, "done", "it was claimed again, with fence 4"),
        (None, None, "done", "it is not in the table any more"),
    ],
)
def test_what_it_means_that_a_job_could_not_be_changed(
    state: str | None, fence: int | None, wanted: str, words: str | None
) -> None:
    refusal = refused_answer(a_job(), state, fence, wanted)
    if words is None:
        assert refusal is None
        return
    assert isinstance(refusal, StaleFence)
    assert f"job 7 of the queue 'q' cannot be changed by the claim with fence 3: {words}. Take back" in str(refusal)
    assert (refusal.name, refusal.fence, refusal.highest) == ("q", 3, fence)


def test_what_is_kept_of_an_error_is_its_type_and_sentence() -> None:
    assert error_text(ValueError("no")) == "ValueError: no"
    assert error_text("as it is") == "as it is"
    assert error_text("x" * 1000) == "x" * 1000
    assert error_text("x" * 1001) == "x" * 997 + "..."
    assert error_text("a\0b\ud800") == "a\\x00b\\ud800"
    assert vanished(3, None).endswith("attempt 3 vanished, or needed longer than the visibility timeout")
    assert vanished(3, "no").endswith("timeout; before that: no")
    assert len(vanished(3, "x" * 1000)) == job_module.MAX_ERROR


def test_a_payload_may_have_so_many_bytes_and_no_more() -> None:
    assert write_payload("xx", 4) == '"xx"'
    assert write_payload({"ü": [1, None]}, 99) == '{"\\u00fc":[1,null]}'
    with pytest.raises(ConfigurationError, match="the payload has 5 bytes as JSON, and max_payload is 4"):
        write_payload("xxx", 4)
    for payload in (object(), float("nan"), {(): 1}):
        with pytest.raises(ConfigurationError, match="a payload is kept as JSON"):
            write_payload(payload, 99)
    with pytest.raises(ConfigurationError, match="max_payload is 4"):
        Queue("q", max_payload=4).enqueue(None, "xxx")


def test_the_last_attempt_is_the_one_with_the_number_of_all() -> None:
    rules = Rules("q", 30.0, 3, 99, None)
    assert [rules.is_last(attempt) for attempt in (2, 3, 4)] == [False, True, True]
    assert not Rules("q", 30.0, None, 99, None).is_last(10**9)


def test_pauses_between_attempts_are_those_of_the_backoff_or_the_given_one() -> None:
    assert [QUEUE.pause_after(a_job(attempt=attempt), "no") for attempt in (1, 2, 3)] == [10, 20, None]
    assert QUEUE.pause_after(a_job(attempt=1), "no", "5m") == 300
    assert QUEUE.pause_after(a_job(attempt=1), "no", 0) == 0
    assert QUEUE.pause_after(a_job(attempt=3), "no", "5m") is None
    assert QUEUE.pause_after(a_job(attempt=1), GiveUp("no"), "5m") is None
    with pytest.raises(ConfigurationError, match="delay"):
        QUEUE.pause_after(a_job(attempt=1), "no", -1)


def test_what_a_queue_does_unless_told_otherwise() -> None:
    plain = Queue("q")
    assert (plain.visibility, plain.keep, repr(plain)) == (30.0, 86_400.0, "<Queue 'q'>")
    assert plain._rules == Rules("q", 30.0, 10, 65_536, None)
    assert (BACKOFF.steps, BACKOFF.factor, BACKOFF.longest, BACKOFF.jitter) == ((1.0,), 3, 600.0, "full")
    assert (POLL.longest, POLL.jitter) == (1.0, "equal")
    chosen = Queue("q", visibility="1m", keep="1h", max_attempts=2, max_payload=9, schema="s")
    assert chosen._rules == Rules("q", 60.0, 2, 9, "s")


NOTHING: Any = None


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda: Queue(""), "the name of a queue"),
        (lambda: Queue("q", visibility=0), "visibility"),
        (lambda: Queue("q", keep=-1), "keep"),
        (lambda: Queue("q", max_attempts=0), "max_attempts must be a whole number of at least 1"),
        (lambda: Queue("q", max_attempts=True), "max_attempts"),
        (lambda: Queue("q", max_payload=0), "max_payload"),
        (lambda: Queue("q", schema=""), "schema"),
        (lambda: Queue("q", backoff=NOTHING), "backoff must be a leasehold.Backoff, not a NoneType"),
        (lambda: Queue("q", backoff=Backoff(tries=3)), "max_attempts=, not with tries="),
        (lambda: QUEUE.enqueue(NOTHING, 1, key=""), "the key of a job"),
        (lambda: QUEUE.enqueue(NOTHING, 1, delay=-1), "delay"),
        (lambda: QUEUE.claim(NOTHING, limit=1001), "limit is at most 1000, not 1001"),
        (lambda: QUEUE.claim(NOTHING, visibility=0), "visibility"),
        (lambda: QUEUE.extend(NOTHING, a_job(), 0), "visibility"),
        (lambda: QUEUE.jobs(NOTHING, limit=0), "limit must be a whole number of at least 1"),
        (lambda: QUEUE.job(NOTHING, 0), "job_id"),
        (lambda: find_job(NOTHING, True), "job_id"),
        (lambda: QUEUE.purge(NOTHING, 0), "job_id"),
        (lambda: QUEUE.purge(NOTHING, older_than=-1), "older_than"),
        (lambda: QUEUE.purge(NOTHING, limit=0), "limit"),
        (lambda: QUEUE.retry_dead(NOTHING, 0), "job_id"),
        (lambda: QUEUE.retry_dead(NOTHING, limit=0), "limit"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_name(mistake: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        mistake()


def test_a_table_that_another_transaction_makes_is_waited_for_by_running_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def home(wire: Any, schema: str | None) -> str | None:
        return None if schema is None else schema

    async def found(wire: Any, schema: str | None) -> str | None:
        return None if schema is None else f"found {schema}"

    monkeypatch.setattr(postgresql.TABLE, "home", home)
    monkeypatch.setattr(postgresql.TABLE, "found", found)
    with pytest.raises(RetryTransaction, match="being made by a transaction that is not over"):
        run(postgresql.table(NOTHING, None, make=True))
    assert run(postgresql.table(NOTHING, None, make=False)) is None
    assert run(postgresql.table(NOTHING, "a", make=False)) == '"found a".leasehold_queue'
    assert run(postgresql.table(NOTHING, "a%b", make=True)) == '"a%%b".leasehold_queue'
