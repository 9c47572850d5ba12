"""Ranges of fences on PostgreSQL: kept free behind a grant out of the queue, also from clients of earlier versions."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import leasehold
from leasehold._backends.postgres.statements import array
from leasehold._record import replace
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.values import MAX_FENCE, Claim, Grant, Holder, Loss, Mode
from tests.stores.support import eventually, waiters

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "leasehold:job"
EARLIER_TABLES = Path(__file__).parents[2] / "servers"


def claim(mode: Mode = Mode.EXCLUSIVE, **facts: Any) -> Claim:
    return replace(Claim(KEY, ThreadRuntime().owner(), 60.0, mode, 8, 0.0, Holder("host", 1)), **facts)


def passed_on(grant: Grant, times: int) -> Grant:
    return replace(grant, fence=grant.fence + times)


async def out_of_the_queue(backend: Any) -> Grant:
    held = await backend.try_acquire(claim())
    place = await backend.join(claim())
    assert await backend.release(held) is True
    granted = await backend.turn(place)
    assert isinstance(granted, Grant)
    return granted


@pytest.fixture
def backend(database: str) -> Iterator[Any]:
    opened = find_store(database).open_backend(ThreadRuntime())
    yield opened
    run(opened.close())


@pytest.fixture
def table(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def test_every_way_to_learn_of_a_hand_over_tells_of_the_same_fences(backend: Any) -> None:
    """By notification, one turn, turns in one query, the query of clients that poll, the claim sent again."""

    async def story() -> None:
        held = await backend.try_acquire(claim())
        place = await backend.join(claim())
        eventually(lambda: backend._listener.channel is not None, "it does not listen")
        place = await backend.turn(place)  # its channel is in the tables now
        assert await backend.release(held) is True
        eventually(lambda: place.waiter.handover is not None, "no notification came")
        ranges = [(place.waiter.handover.fence, place.waiter.handover.spare)]
        notified = await backend.turn(place)
        keys, owners = array((KEY.encode(),), binary=True), array((place.claim.owner.encode(),))
        polled = await backend._execute(backend._sql.handovers, (keys, owners))
        word = polled.get_value(0, 3).decode()
        assert word.startswith("r")
        turns = await backend._execute(backend._sql.turns, (keys, owners, None))
        ranges += [
            (int(polled.get_value(0, 1)), int(word[1:])),
            (int(turns.get_value(0, 2)), int(turns.get_value(0, 8))),
        ]
        for grant in (notified, await backend.turn(place), await backend.join(place.claim)):
            ranges.append((grant.fence, grant.spare))
        assert set(ranges) == {(notified.fence, 64)}

    run(story())


def test_what_is_handed_over_is_released_under_its_last_fence_and_the_next_one_is_above_it(backend: Any) -> None:
    async def story() -> None:
        held = await backend.try_acquire(claim())
        places = [await backend.join(claim()) for _ in range(4)]
        for place in places:
            assert await backend.release(held) is True
            granted = await backend.turn(place)
            assert isinstance(granted, Grant)
            assert (granted.fence > held.fence, granted.spare) == (True, 64)
            assert await backend.release(passed_on(granted, granted.spare + 1)) is False, "not one of its fences"
            held = passed_on(granted, granted.spare)

    run(story())


def test_fence_that_was_passed_on_frees_nothing_of_a_busy_queue(backend: Any) -> None:
    async def story() -> None:
        grant = await out_of_the_queue(backend)
        place = await backend.join(claim())
        (renewed,) = await backend.renew([passed_on(grant, 2)])
        assert renewed == replace(passed_on(grant, 2), since=None)
        assert await backend.release(passed_on(grant, 1)) is False
        assert isinstance((await backend.renew([passed_on(grant, 1)]))[0], Loss)
        again = await backend.turn(replace(place, claim=grant.claim, waiter=None))
        assert (again.fence, again.spare) == (grant.fence + 2, grant.spare - 2)
        assert await backend.release(passed_on(grant, 2)) is True
        assert isinstance(await backend.turn(place), Grant)

    run(story())


def test_a_grant_at_once_that_asks_for_none_leaves_no_gap_in_the_fences(backend: Any) -> None:
    """Whichever way it went; or a name that is granted all the time would outrun the clock that fences follow."""

    async def story() -> None:
        await backend.raise_fence(KEY, 2**52)  # ahead of the clock, so that fences are counted
        ways: list[dict[str, Any]] = [{}, {"min_hold": 0.001}, {}, {"spare": 3}, {}]
        for number, facts in enumerate(ways):
            ahead = 4 if number > 3 else 1
            eventually(lambda: run(backend.inspect(KEY)) is None)
            grant = await backend.try_acquire(claim(**facts))
            assert grant.fence == 2**52 + number + ahead
            assert await backend.release(grant) is True

    run(story())


def test_readers_have_one_fence_each(backend: Any) -> None:
    async def story() -> None:
        held = await backend.try_acquire(claim())
        places = [await backend.join(claim(Mode.SHARED)) for _ in range(3)]
        assert await backend.release(held) is True
        readers = [await backend.turn(place) for place in places]
        assert [reader.spare for reader in readers] == [0, 0, 0]
        first = readers[0]
        assert isinstance((await backend.renew([passed_on(first, 1)]))[0], Loss)
        assert await backend.release(passed_on(first, 1)) is False
        wanted = await backend.try_acquire(claim(Mode.SHARED, spare=5))
        assert wanted.spare == 0
        assert await backend.release(first) is True

    run(story())


@pytest.mark.parametrize("way", ["release", "break"])
def test_at_the_highest_fence_a_range_is_short_and_the_lock_is_handed_over_nevertheless(backend: Any, way: str) -> None:
    async def story() -> None:
        held = await backend.try_acquire(claim())
        place = await backend.join(claim())
        await backend.raise_fence(KEY, MAX_FENCE - 10)
        if way == "release":
            assert await backend.release(held) is True
        else:
            assert await backend.break_(KEY, held.fence, "stuck", now=True)
        granted = await backend.turn(place)
        assert (granted.fence, granted.spare) == (MAX_FENCE - 9, 9)
        assert await backend.release(passed_on(granted, 9)) is True

    run(story())


def test_waiters_of_one_client_pass_the_lock_on_under_consecutive_fences(database: str) -> None:
    fences: list[int] = []
    with leasehold.connect(database, ttl=60) as holder, leasehold.connect(database, ttl=60) as client:
        lease = holder.lock("job").acquire()

        def work() -> None:
            with client.lock("job").hold(timeout=60) as mine:
                fences.append(mine.fence)

        threads = [threading.Thread(target=work) for _ in range(20)]
        for thread in threads:
            thread.start()
        eventually(lambda: waiters(holder, "job") == 1)
        eventually(lambda: len(_in_line(client)) == 20)
        lease.release()
        for thread in threads:
            thread.join()
        following = holder.lock("job").acquire().fence
    assert fences == sorted(set(fences))
    assert sum(fence == before + 1 for before, fence in pairwise(fences)) >= 10
    assert lease.fence < fences[0]
    assert fences[-1] < following


def _in_line(client: Any) -> Any:
    (queue,) = client._twin._open().local.queues.values()
    return queue.waiting


# --- beside clients of earlier versions


class Older:
    """The functions that a client of that version calls."""

    def __init__(self, connection: psycopg.Connection[Any], version: int) -> None:
        self._connection = connection
        self._version = version
        self._verbs = min(version, 3)  # version 4 kept their names

    def make_tables(self) -> None:
        self._connection.execute((EARLIER_TABLES / f"postgres_tables_{self._version}.sql").read_bytes())

    def join(self, owner: str) -> tuple[Any, ...]:
        acquire = (
            f"SELECT verdict, fence FROM leasehold.acquire_{self._verbs}(%s, %s, 60, 'exclusive', 1, 0, '{{}}', 0, "
            "true, 'older', false)"
        )
        return self._connection.execute(acquire.encode(), [KEY.encode(), owner]).fetchone() or ()

    def turn(self, owner: str) -> tuple[Any, ...]:
        turn = f"SELECT verdict, fence FROM leasehold.turn_{self._verbs}(%s, %s, 'older')"
        return self._connection.execute(turn.encode(), [KEY.encode(), owner]).fetchone() or ()

    def release(self, owner: str, fence: int) -> object:
        release = f"SELECT leasehold.release_{self._verbs}(%s, %s, %s)"
        return (self._connection.execute(release.encode(), [KEY.encode(), owner, fence]).fetchone() or (None,))[0]


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_client_of_an_earlier_version_gets_no_fence_out_of_a_range(
    database: str, table: psycopg.Connection[Any], version: int
) -> None:
    older = Older(table, version)
    older.make_tables()
    backend: Any = find_store(database).open_backend(ThreadRuntime())

    async def story() -> None:
        grant = await out_of_the_queue(backend)
        assert grant.spare > 0
        assert older.join("older") == ("placed", None)
        last = passed_on(grant, grant.spare)
        assert await backend.release(last) is True
        verdict, fence = older.turn("older")
        assert verdict == "granted"
        assert fence > last.fence
        place = await backend.join(claim())
        assert older.release("older", fence) in (True, "freed"), "and it can free what it was granted"
        mine = await backend.turn(place)
        assert mine.fence > fence
        assert await backend.release(passed_on(mine, mine.spare)) is True
        verdict, following = older.join("at once")
        assert verdict == "granted"
        assert following > mine.fence + mine.spare, "the fences behind a grant are nobody else's, whoever made it"

    run(story())
    run(backend.close())


def test_a_hand_over_by_functions_of_an_earlier_version_has_no_fences_to_pass_on(
    backend: Any, table: psycopg.Connection[Any]
) -> None:
    """The functions in the database may be older than this client: whoever grants tells how many fences are free."""

    async def story() -> None:
        held = await backend.try_acquire(claim())
        place = await backend.join(claim())
        eventually(lambda: backend._listener.channel is not None, "it does not listen")
        place = await backend.turn(place)
        table.execute((EARLIER_TABLES / "postgres_tables_4.sql").read_bytes())
        release = b"SELECT leasehold.release_3(%s, %s, %s)"
        assert table.execute(release, [KEY.encode(), held.claim.owner, held.fence]).fetchone() == ("freed",)
        eventually(lambda: place.waiter.handover is not None, "no notification came")
        notified, asked = await backend.turn(place), await backend.turn(place)
        assert (notified.fence, notified.spare) == (asked.fence, 0)
        assert asked.spare == 0
        assert await backend.release(passed_on(notified, 1)) is False

    run(story())


@pytest.mark.parametrize("version", [2, 3, 4])
def test_client_of_an_earlier_version_understands_that_it_was_handed_the_lock(
    database: str, table: psycopg.Connection[Any], version: int
) -> None:
    """It takes a message of four words; the last one tells it nothing but whether the holder before had vanished."""
    older = Older(table, version)
    older.make_tables()
    backend: Any = find_store(database).open_backend(ThreadRuntime())
    with psycopg.connect(database, autocommit=True) as listening:
        listening.execute("LISTEN older")
        for owner, vanished in (("first", False), ("second", True)):
            held = run(backend.try_acquire(claim()))
            assert older.join(owner)[0] == "placed"
            if vanished:
                assert run(backend.break_(KEY, held.fence, "stuck", now=True))
            else:
                assert run(backend.release(held)) is True
            (message,) = listening.notifies(timeout=60, stop_after=1)
            name, fence, moment, word = message.payload.split()
            assert (name, int(fence), word == "1") == (owner, older.turn(owner)[1], vanished)
            assert float(moment) > 0
            assert older.release(owner, int(fence)) in (True, "freed")
    run(backend.close())


def test_statements_of_an_earlier_version_that_are_run_again_leave_ranges_as_they_are(
    backend: Any, table: psycopg.Connection[Any]
) -> None:
    grant = run(out_of_the_queue(backend))
    table.execute((EARLIER_TABLES / "postgres_tables_4.sql").read_bytes())
    (renewed,) = run(backend.renew([passed_on(grant, 1)]))
    assert isinstance(renewed, Grant)
    assert run(backend.release(passed_on(grant, grant.spare))) is True
    assert run(out_of_the_queue(backend)).fence > grant.fence + grant.spare
