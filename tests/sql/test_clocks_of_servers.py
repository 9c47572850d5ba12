"""Times, orders and limits in the statements for servers, in sessions that live in another time zone.

The same for SQLite is in tests/unit, where it takes no server: `test_reservation_steps`, `test_queue_rows`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from leasehold.sql import IdempotencyKeys, Queue, Stock, find_job, list_queues, queue_schema, reservations_schema
from leasehold.sql import idempotency_schema as keys_schema
from tests.servers.mariadb import fresh_mariadb
from tests.sql.desks import fresh_schema, make_desk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sql.desks import Desk

A_WHILE = timedelta(minutes=30)  # more than any test takes, and less than a time zone
TIMES = {
    "leasehold_reservation": ("made_at", "expires_at"),
    "leasehold_queue": ("due_at", "enqueued_at", "changed_at"),
    "leasehold_idempotency": ("completed_at", "expires_at"),
}


class Server:
    """One connection whose session is five hours ahead."""

    def __init__(self, database: str, desk: Desk) -> None:
        self.database = database
        self.desk = desk

    def begin(self) -> Any:
        return self.desk.begin()

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        with self.desk.begin() as tx:
            return self.desk.run(tx, statement)

    def later(self, table: str, seconds: int, where: str = "1 = 1") -> None:
        """As if so much time had passed for these rows."""
        step = f"INTERVAL '{seconds} seconds'" if self.database == "postgresql" else f"INTERVAL {seconds} SECOND"
        moved = ", ".join(f"{column} = {column} - {step}" for column in TIMES[table])
        self.run(f"UPDATE {table} SET {moved} WHERE {where}")


@pytest.fixture(scope="module", params=["postgresql", "mysql"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    if request.param == "postgresql":
        desk = make_desk("psycopg", fresh_schema(request.getfixturevalue("postgres")))
        zone = "SET TIME ZONE '+05:00'"
    else:
        desk = make_desk("pymysql", fresh_mariadb(request.getfixturevalue("mariadb")))
        zone = "SET time_zone = '+05:00'"
    server = Server(request.param, desk)
    for schema in (reservations_schema, queue_schema, keys_schema):
        for statement in filter(str.strip, schema(request.param).split(";\n")):
            server.run(statement)
    server.run(zone)
    yield server
    desk.close()


@pytest.fixture(autouse=True)
def _emptied(server: Server) -> None:
    for table in (*TIMES, "leasehold_stock"):
        server.run(f"DELETE FROM {table}")


def near(seconds: float | None) -> Any:
    """Give or take what the test itself needs."""
    return pytest.approx(seconds, abs=A_WHILE.total_seconds())


# --- reservations

STOCK = Stock("tickets", hold="2h", keep="5h")


def states(server: Server) -> dict[str, str]:
    with server.begin() as tx:
        return {each.key: each.state for each in STOCK.reservations(tx)}


def reserve(server: Server, *keys: str, hold: Any = None) -> Any:
    with server.begin() as tx:
        return [STOCK.reserve(tx, {"a": 1}, key=key, hold=hold) for key in keys]


def test_a_hold_ends_by_the_clock_of_the_server_whatever_the_zone_of_the_session(server: Server) -> None:
    with server.begin() as tx:
        STOCK.restock(tx, {"a": 9})
    now = datetime.now(UTC)
    (usual,) = reserve(server, "usual")
    (short,) = reserve(server, "short", hold="90500ms")
    assert abs(usual.expires_at - now - timedelta(hours=2)) < A_WHILE
    assert not usual.overdue
    kept = server.run("SELECT expires_at - made_at FROM leasehold_reservation WHERE id = 'short'")
    if server.database == "postgresql":
        assert kept == [(timedelta(seconds=90.5),)]
    with server.begin() as tx:
        found = STOCK.find(tx, "short")
    assert found == short
    assert abs(usual.expires_at - short.expires_at - timedelta(seconds=7200 - 90.5)) < A_WHILE


def test_a_sweep_of_a_server_takes_the_oldest_first_and_keeps_records_as_long_as_was_said(server: Server) -> None:
    with server.begin() as tx:
        STOCK.restock(tx, {"a": 9})
    reserve(server, "c", "b", "a", "held", "confirmed", "cancelled")
    with server.begin() as tx:
        STOCK.confirm(tx, "confirmed")
        STOCK.cancel(tx, "cancelled")
    for age, key in enumerate("cba", 1):
        server.later("leasehold_reservation", 7200 + age, f"id = '{key}'")
    server.later("leasehold_reservation", 7200 + 4 * 3600, "id IN ('confirmed', 'cancelled')")
    with server.begin() as tx:
        assert STOCK.sweep(tx, limit=1) == 1
    over = {"confirmed": "confirmed", "cancelled": "cancelled", "held": "held"}
    assert states(server) == {**over, "a": "expired", "b": "held", "c": "held"}
    with server.begin() as tx:
        assert STOCK.sweep(tx) == 2
        assert STOCK.available(tx, "a") == 7
    assert states(server) == {**over, "a": "expired", "b": "expired", "c": "expired"}
    server.later("leasehold_reservation", 2 * 3600, "id IN ('confirmed', 'cancelled')")
    with server.begin() as tx:
        assert STOCK.sweep(tx, limit=1) == 0
    assert len(states(server)) == 5, "one old record at a time"
    with server.begin() as tx:
        assert STOCK.sweep(tx) == 0
    assert set(states(server)) == {"held", "a", "b", "c"}


def test_reservations_of_a_server_are_listed_by_the_moment_at_which_they_expire(server: Server) -> None:
    with server.begin() as tx:
        STOCK.restock(tx, {"a": 9})
    reserve(server, "b", "c", "d", "a")
    server.run("UPDATE leasehold_reservation SET expires_at = made_at")
    server.run("UPDATE leasehold_reservation SET expires_at = '2026-01-01 00:00:00' WHERE id IN ('c', 'a')")
    server.later("leasehold_reservation", 10, "id = 'd'")
    with server.begin() as tx:
        assert [each.key for each in STOCK.reservations(tx)] == ["a", "c", "d", "b"]
        assert [each.key for each in STOCK.reservations(tx, limit=2)] == ["a", "c"]
        STOCK.cancel(tx, "a")
        assert [each.key for each in STOCK.reservations(tx, state="held", limit=2)] == ["c", "d"]
        STOCK.reserve(tx, {"a": 6})
        assert {each.key: each.state for each in STOCK.reservations(tx, state="expired")} == {}
        STOCK.reserve(tx, {"a": 1})
        assert [each.key for each in STOCK.reservations(tx, state="expired")] == ["c"], "the oldest hold is given away"


# --- queues

QUEUE = Queue("mails", visibility="2h", keep="3h", max_attempts=2)


def enqueue(server: Server, *payloads: object, **words: Any) -> list[int]:
    with server.begin() as tx:
        return [QUEUE.enqueue(tx, payload, **words) for payload in payloads]


def info(server: Server, number: int) -> Any:
    with server.begin() as tx:
        found = find_job(tx, number)
    assert found is not None
    return found


def test_a_job_of_a_server_tells_its_times(server: Server) -> None:
    (number,) = enqueue(server, 1, delay="4h")
    seen = info(server, number)
    assert (seen.due_in, seen.age, seen.changed, seen.worker) == (near(14_400), near(0), near(0), None)
    with server.begin() as tx:
        assert QUEUE.claim(tx) == []
    if server.database == "mysql":  # whose columns have no zone of their own
        ((age,),) = server.run("SELECT TIMESTAMPDIFF(SECOND, enqueued_at, UTC_TIMESTAMP()) FROM leasehold_queue")
        assert age == near(0)
    server.later("leasehold_queue", 40_000)
    with server.begin() as tx:
        (job,) = QUEUE.claim(tx)
    assert (job.age, job.attempt, job.fence) == (near(40_000), 1, 1)
    seen = info(server, number)
    assert (seen.due_in, seen.age, seen.changed) == (near(7_200), near(40_000), near(0))
    assert seen.worker
    server.later("leasehold_queue", 5_000)
    with server.begin() as tx:
        QUEUE.extend(tx, job, "9h")
    seen = info(server, number)
    assert (seen.due_in, seen.changed) == (near(32_400), near(5_000))
    with server.begin() as tx:
        assert QUEUE.fail(tx, job, "no", delay="7h") == 25_200
    seen = info(server, number)
    assert (seen.state, seen.due_in, seen.changed, seen.last_error) == ("ready", near(25_200), near(0), "no")
    server.later("leasehold_queue", 40_000)
    with server.begin() as tx:
        (job,) = QUEUE.claim(tx, visibility="9h")
        QUEUE.release(tx, job)
    seen = info(server, number)
    assert (seen.state, seen.attempts, seen.fence, seen.due_in) == ("ready", 1, 2, near(0))


def test_jobs_of_a_server_are_taken_retried_and_removed_in_their_order(server: Server) -> None:
    numbers = enqueue(server, *"abcd")
    server.later("leasehold_queue", 60, f"id > {numbers[1]}")
    server.run(f"UPDATE leasehold_queue SET due_at = enqueued_at WHERE id > {numbers[1]}")
    with server.begin() as tx:
        assert [job.payload for job in QUEUE.claim(tx, limit=3)] == ["c", "d", "a"]
    server.run("UPDATE leasehold_queue SET state = 'dead', due_at = NULL, attempts = 2")
    server.later("leasehold_queue", 100, f"id = {numbers[2]}")
    server.run(f"UPDATE leasehold_queue SET due_at = NULL WHERE id = {numbers[2]}")
    with server.begin() as tx:
        assert QUEUE.retry_dead(tx, limit=1) == 1
    retried = info(server, numbers[2])
    assert (retried.state, retried.attempts, retried.due_in, retried.changed) == ("ready", 0, near(0), near(0))
    server.run("UPDATE leasehold_queue SET state = 'done', due_at = NULL")
    with server.begin() as tx:
        assert QUEUE.purge(tx) == 0
    server.later("leasehold_queue", 20_000)
    server.later("leasehold_queue", 100, f"id = {numbers[1]}")
    with server.begin() as tx:
        assert QUEUE.purge(tx, older_than="9h") == 0
        assert QUEUE.purge(tx, limit=1) == 1
        assert [job.id for job in QUEUE.jobs(tx)] == [numbers[0], *numbers[2:]]
        assert [job.id for job in QUEUE.jobs(tx, limit=2)] == [numbers[0], numbers[2]]
        assert QUEUE.purge(tx, numbers[3]) == 1
        assert QUEUE.purge(tx) == 2


def test_a_job_of_a_server_whose_workers_vanished_is_buried(server: Server) -> None:
    poison, good = enqueue(server, "poison", "good")
    server.run(f"UPDATE leasehold_queue SET attempts = 2, state = 'claimed', last_error = 'x' WHERE id = {poison}")
    with server.begin() as tx:
        (job,) = QUEUE.claim(tx)
    assert job.id == good
    buried = info(server, poison)
    assert (buried.state, buried.due_in, buried.attempts) == ("dead", None, 2)
    assert buried.last_error.endswith("before that: x")


def test_queues_of_a_server_are_counted(server: Server) -> None:
    numbers = enqueue(server, *range(3))
    enqueue(server, 3, 4, delay="4h")
    with server.begin() as tx:
        Queue("again").enqueue(tx, 1)
    server.later("leasehold_queue", 30_000, f"id = {numbers[1]}")
    with server.begin() as tx:
        first, second = list_queues(tx)
        assert (first.queue, first.ready, first.lag) == ("again", 1, near(0))
        assert (second.queue, second.ready, second.delayed, second.lag) == ("mails", 3, 2, near(30_000))


# --- idempotency keys


def test_a_key_of_a_server_is_known_as_long_as_was_said(server: Server) -> None:
    keys = IdempotencyKeys("charges", keep="4h", sweep_every=0)

    def charge(key: str) -> bool:
        with server.begin() as tx, keys.attempt(tx, key, fingerprint="x") as attempt:
            if not attempt.replayed:
                attempt.complete(1)
        return attempt.replayed

    column = "key" if server.database == "postgresql" else "`key`"
    assert [charge("a"), charge("a")] == [False, True]
    server.later("leasehold_idempotency", 3 * 3600)
    assert charge("a")
    server.later("leasehold_idempotency", 3600 + 1)
    assert [charge("a"), charge("b"), charge("c"), charge("d")] == [False] * 4
    assert charge("a"), "it was completed again, and is kept from then on"
    for age, key in enumerate("bcd", 1):
        server.later("leasehold_idempotency", 4 * 3600 + age, f"{column} = '{key}'")
    with server.begin() as tx:
        assert keys.sweep(tx, limit=1) == 1
    assert sorted(str(key) for (key,) in server.run(f"SELECT {column} FROM leasehold_idempotency")) == sorted(
        str(key if server.database == "postgresql" else key.encode()) for key in "abc"
    ), "the oldest went first"
    with server.begin() as tx:
        assert keys.sweep(tx) == 2
