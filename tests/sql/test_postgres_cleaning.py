"""Rows that nobody needs go away, and no fence goes back by that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

import leasehold
from leasehold.sql import store_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY = "interval '1 day 1 hour'"
BACK = f"(extract(epoch FROM {DAY}) * 1000000)::bigint"


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection]:
    """The owner's own."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(store_schema().encode())
        yield connection


def age(connection: psycopg.Connection) -> None:
    """Let everything be a day and an hour older."""
    connection.execute(
        f"UPDATE leasehold.lock SET fence = fence - {BACK}, since = since - {DAY}, expires = expires - {DAY}, "
        f"abandoned_until = abandoned_until - {DAY}, look = look - {DAY}".encode()
    )
    connection.execute(f"UPDATE leasehold.claim SET expires = expires - {DAY}, since = since - {DAY}".encode())
    connection.execute(
        f"UPDATE leasehold.record SET expires = expires - {DAY}, fence_until = fence_until - {DAY}".encode()
    )


def clean(connection: psycopg.Connection, slice_: int = 1000) -> int:
    row = connection.execute("SELECT leasehold.clean_3(%s, 0)", (slice_,)).fetchone()
    assert row is not None
    return int(row[0])


def count(connection: psycopg.Connection, table: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM leasehold.{table}".encode()).fetchone()
    assert row is not None
    return int(row[0])


def leave_everything(client: leasehold.Client) -> None:
    """A name of every kind that can be left behind: released, expired, broken, withdrawn, waited for, recorded."""
    client.lock("released").acquire().release()
    client.lock("vanished", ttl=0.1, renew=False).acquire()
    lease = client.lock("waited for", ttl=60).acquire()
    with pytest.raises(leasehold.AcquireTimeout):
        client.lock("waited for").acquire(timeout=0.05)
    assert client.break_lock("waited for", fence=lease.fence, reason="test", now=True)
    assert client.once("job", slot="1").run(lambda: 1)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_is_a_day_old_goes_and_what_is_younger_stays(database: str, connection: psycopg.Connection) -> None:
    with leasehold.connect(database, ttl=30) as client:
        leave_everything(client)
        before = count(connection, "lock")
        assert before >= 4
        clean(connection)
        assert count(connection, "lock") == before, "a fence is remembered for a day"
        connection.execute("UPDATE leasehold.record SET expires = now()")  # a slot is remembered for a long time
        age(connection)
        for _ in range(3):
            clean(connection)
        assert (count(connection, "lock"), count(connection, "claim"), count(connection, "record")) == (0, 0, 0)


def test_fences_rise_over_the_cleaning(database: str, connection: psycopg.Connection) -> None:
    with leasehold.connect(database) as client:
        before = client.lock("job").acquire()
        before.release()
        age(connection)
        clean(connection)
        assert count(connection, "lock") == 0
        with client.lock("job").hold() as after:
            assert after.fence > before.fence


def test_fence_that_ran_ahead_of_the_clock_is_remembered_until_the_clock_has_passed_it(
    database: str, connection: psycopg.Connection
) -> None:
    with leasehold.connect(database) as client:
        lease = client.lock("job").acquire()
        lease.release()
        ahead = client.raise_fence("job", lease.fence + 3 * 86_400_000_000, reason="test")
        age(connection)
        clean(connection)
        with client.lock("job").hold() as after:
            assert after.fence > ahead - 90_000_000_000  # it was aged by 25 hours
            assert after.fence > lease.fence + 86_400_000_000


def test_what_is_in_use_stays(database: str, connection: psycopg.Connection) -> None:
    with leasehold.connect(database, ttl=600) as client:
        plain, shared = client.lock("plain").acquire(), client.rwlock("shared").read.acquire()
        connection.execute(f"UPDATE leasehold.lock SET fence = fence - {BACK}".encode())  # old fences, young holders
        connection.execute(f"UPDATE leasehold.claim SET fence = fence - {BACK}".encode())
        clean(connection)
        assert [state.name for state in client.locks()] == ["plain", "shared"]
        del plain, shared
        client.close()


def test_a_fence_is_remembered_for_a_day_after_it_was_last_shown(connection: psycopg.Connection) -> None:
    show = "SELECT leasehold.read_3('job', 7)"
    connection.execute(show)
    connection.execute("UPDATE leasehold.record SET fence_until = now()")
    connection.execute(show)
    clean(connection)
    late = connection.execute("SELECT leasehold.write_3('job', 'late', 6, 60)").fetchone()
    assert late == (False,)


def test_cleaning_walks_on_through_many_rows(database: str, connection: psycopg.Connection) -> None:
    connection.execute(
        "INSERT INTO leasehold.lock (key, fence) "
        "SELECT convert_to('leasehold:' || n, 'UTF8'), n FROM generate_series(1, 95) n"
    )
    assert [clean(connection, 20) for _ in range(6)] == [20, 20, 20, 20, 15, 0]


def test_one_cleans_at_a_time_and_not_too_often(connection: psycopg.Connection) -> None:
    connection.execute("INSERT INTO leasehold.lock (key, fence) VALUES ('a', 1)")
    for expected in (1, 0):
        row = connection.execute("SELECT leasehold.clean_3(100, 3600)").fetchone()
        assert row == (expected,)
        connection.execute("INSERT INTO leasehold.lock (key, fence) VALUES ('b', 1) ON CONFLICT DO NOTHING")
