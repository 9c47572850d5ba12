"""A crowd at one name on MariaDB: each verb is one query, and where it does not fit, the rules decide."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.mysql.statements import NOW
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.spi import Place
from leasehold.values import Claim, Grant, Holder, Mode, Refusal
from tests.stores.support import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.lab.mariadb import MariadbServer

KEY = "leasehold:job"


def claim(ttl: float = 60.0, mode: Mode = Mode.EXCLUSIVE, min_hold: float = 0.0) -> Claim:
    return Claim(KEY, ThreadRuntime().owner(), ttl, mode, 1, min_hold, Holder("host", 1))


@pytest.fixture
def backends(mariadb_database: str) -> Iterator[list[Any]]:
    several = [find_store(mariadb_database).open_backend(ThreadRuntime()) for _ in range(3)]
    yield several
    for backend in several:
        run(backend.close())


class Queries:
    """Counts what a backend sends."""

    def __init__(self, backend: Any) -> None:
        self.sent: list[bytes] = []
        self._execute = backend._execute
        backend._execute = self.execute

    async def execute(self, text: bytes, *more: Any, **words: Any) -> Any:
        self.sent.append(text)
        return await self._execute(text, *more, **words)


def listens(backend: Any) -> bool:
    return backend._listener.name is not None


def states(server: MariadbServer, url: str) -> list[int]:
    database = url.rpartition("/")[2]
    return [int(str(state)) for (state,) in server.run("SELECT state FROM leasehold_claim ORDER BY number", database)]


def test_release_grants_to_the_next_waiter_in_one_query_and_its_turn_is_one_reading(backends: list[Any]) -> None:
    holder, crowd, _ = backends

    async def story() -> None:
        held = await holder.try_acquire(claim())
        places = [await crowd.join(claim()) for _ in range(2)]
        eventually(lambda: listens(crowd))
        places = [await crowd.turn(place) for place in places]
        assert all(0 < place.retry_after <= held.ttl for place in places), "when the grant in their way ends"
        holder._crowded.add(KEY)  # as it is, once it has seen that others wait
        releases, turns = Queries(holder), Queries(crowd)
        assert await holder.release(held) is True
        assert len(releases.sent) == 1
        granted = await crowd.turn(places[0])
        assert isinstance(granted, Grant)
        assert granted.fence > held.fence
        assert granted.ttl <= 3.0, "until its holder has shown that it lives"
        assert len(turns.sent) == 1
        assert isinstance(await crowd.turn(places[1]), Place)
        (renewed,) = await crowd.renew([granted])
        assert isinstance(renewed, Grant)
        assert renewed.ttl == 60.0

    run(story())


def test_turn_of_a_waiter_that_was_kept_alive_a_moment_ago_writes_nothing(
    backends: list[Any], mariadb: MariadbServer, mariadb_database: str
) -> None:
    holder, crowd, _ = backends
    database = mariadb_database.rpartition("/")[2]

    def ends() -> list[tuple[object, ...]]:
        return mariadb.run("SELECT expires FROM leasehold_claim WHERE state = 3", database)

    async def story() -> None:
        await holder.try_acquire(claim())
        place = await crowd.join(claim())
        eventually(lambda: listens(crowd))
        place = await crowd.turn(place)
        mariadb.run("UPDATE leasehold_claim SET expires = expires + 60000000 WHERE state = 3", database)
        before = ends()
        assert isinstance(await crowd.turn(place), Place)
        assert ends() == before
        # Counted from now, not from its last look: this machine may be slow between two lines.
        soon = int(str(mariadb.run(f"SELECT {NOW.decode()}")[0][0])) + 1_900_000
        mariadb.run(f"UPDATE leasehold_claim SET expires = {soon} WHERE state = 3", database)
        assert isinstance(await crowd.turn(place), Place)
        assert ends() > [(soon,)], "and is kept alive in time"

    run(story())


def test_what_is_handed_over_keeps_fences_free_and_each_of_them_releases_it(backends: list[Any]) -> None:
    holder, crowd, _ = backends

    async def story() -> None:
        held = await holder.try_acquire(claim())
        places = [await crowd.join(claim()) for _ in range(2)]
        assert await holder.release(held) is True
        granted = await crowd.turn(places[0])
        assert isinstance(granted, Grant)
        assert granted.spare > 0
        passed = Grant(granted.claim, granted.fence + granted.spare, granted.ttl)  # on inside its process, to the last
        queries = Queries(crowd)
        assert await crowd.release(passed) is True
        assert len(queries.sent) == 1
        following = await crowd.turn(places[1])
        assert isinstance(following, Grant)
        assert following.fence > passed.fence

    run(story())


def test_join_behind_others_is_one_query(backends: list[Any]) -> None:
    holder, crowd, other = backends

    async def story() -> None:
        await holder.try_acquire(claim())
        await crowd.join(claim())
        await other.join(claim())
        queries = Queries(other)
        place = await other.join(claim())
        assert isinstance(place, Place)
        assert (place.ahead, str(place.holder)) == (2, "host, pid 1")
        assert len(queries.sent) == 1

    run(story())


def test_claim_that_is_sent_twice_has_one_place(
    backends: list[Any], mariadb: MariadbServer, mariadb_database: str
) -> None:
    holder, crowd, _ = backends

    async def story() -> None:
        await holder.try_acquire(claim())
        await crowd.join(claim())
        again = claim()
        first, second = await crowd.join(again), await crowd.join(again)
        assert (first.ahead, second.ahead) == (1, 1)
        assert states(mariadb, mariadb_database) == [1, 3, 3]

    run(story())


def test_claim_that_was_withdrawn_gets_no_place_when_a_late_copy_arrives(backends: list[Any]) -> None:
    holder, crowd, _ = backends

    async def story() -> None:
        await holder.try_acquire(claim())
        await crowd.join(claim())
        late = claim()
        await crowd.withdraw(late)
        assert KEY in crowd._crowded
        assert isinstance(await crowd.join(late), Refusal)

    run(story())


def test_release_that_is_sent_twice_frees_nothing_of_the_next_holder(backends: list[Any]) -> None:
    holder, crowd, _ = backends

    async def story() -> None:
        held = await holder.try_acquire(claim())
        places = [await crowd.join(claim()) for _ in range(2)]
        assert await holder.release(held) is True
        assert await holder.release(held) is False
        assert isinstance(await crowd.turn(places[0]), Grant)
        assert isinstance(await crowd.turn(places[1]), Place)

    run(story())


def test_lock_that_was_handed_to_a_client_that_vanished_goes_on_to_the_next(
    backends: list[Any], mariadb: MariadbServer, mariadb_database: str
) -> None:
    holder, gone, crowd = backends

    async def story() -> None:
        held = await holder.try_acquire(claim())
        await gone.join(claim())
        place = await crowd.join(claim())
        assert await holder.release(held) is True
        assert states(mariadb, mariadb_database) == [1, 3]
        database = mariadb_database.rpartition("/")[2]
        mariadb.run("UPDATE leasehold_claim SET expires = 1 WHERE state = 1", database)  # it never came
        granted = await crowd.turn(place)
        assert isinstance(granted, Grant)
        assert granted.abandoned is True

    run(story())


def test_waiter_whose_time_is_over_is_not_handed_the_lock(
    backends: list[Any], mariadb: MariadbServer, mariadb_database: str
) -> None:
    holder, dead, crowd = backends

    async def story() -> None:
        held = await holder.try_acquire(claim())
        await dead.join(claim())
        place = await crowd.join(claim())
        database = mariadb_database.rpartition("/")[2]
        mariadb.run("UPDATE leasehold_claim SET expires = 1 WHERE state = 3 ORDER BY number LIMIT 1", database)
        assert await holder.release(held) is True
        assert isinstance(await crowd.turn(place), Grant)

    run(story())


def test_release_of_another_grant_of_the_same_claim_hands_nothing_over(backends: list[Any]) -> None:
    holder, crowd, _ = backends

    async def story() -> None:
        held = await holder.try_acquire(claim())
        place = await crowd.join(claim())
        assert await holder.release(Grant(held.claim, held.fence - 1, held.ttl)) is False
        assert isinstance(await crowd.turn(place), Place)

    run(story())


def test_release_at_a_paused_name_hands_nothing_over(backends: list[Any]) -> None:
    holder, crowd, operator = backends

    async def story() -> None:
        held = await holder.try_acquire(claim())
        place = await crowd.join(claim())
        await operator.pause(KEY, Holder("operator", 1), 60.0)
        assert await holder.release(held) is True
        waiting = await crowd.turn(place)
        assert isinstance(waiting, Place)
        assert waiting.paused is not None
        assert await operator.resume(KEY) is True
        assert isinstance(await crowd.turn(waiting), Grant)

    run(story())


def test_release_with_readers_in_line_wakes_all_of_them(backends: list[Any]) -> None:
    holder, crowd, other = backends

    async def story() -> None:
        held = await holder.try_acquire(claim())
        readers = [await each.join(claim(mode=Mode.SHARED)) for each in (crowd, other)]
        eventually(lambda: listens(crowd) and listens(other))
        places = [await each.turn(place) for each, place in zip((crowd, other), readers, strict=True)]
        for place in places:
            place.signal.clear()
        assert await holder.release(held) is True
        eventually(lambda: all(place.signal.is_set() for place in places))
        assert [type(await each.turn(place)) for each, place in zip((crowd, other), places, strict=True)] == [Grant] * 2

    run(story())


def test_release_that_is_too_late_hands_nothing_over(
    backends: list[Any], mariadb: MariadbServer, mariadb_database: str
) -> None:
    holder, crowd, _ = backends

    async def story() -> None:
        held = await holder.try_acquire(claim())
        place = await crowd.join(claim())
        database = mariadb_database.rpartition("/")[2]
        mariadb.run("UPDATE leasehold_claim SET expires = 1 WHERE state = 1", database)
        assert await holder.release(held) is False
        granted = await crowd.turn(place)
        assert isinstance(granted, Grant)
        assert granted.abandoned is True

    run(story())


def test_one_listener_of_a_server_sleeps_and_the_others_wait_for_its_lock(
    backends: list[Any], mariadb: MariadbServer
) -> None:
    """In MariaDB all that sleep share a mutex, and `KILL QUERY` of one can stop all of them for two seconds."""

    def asleep() -> list[str]:
        seen = mariadb.run("SELECT INFO FROM information_schema.PROCESSLIST WHERE INFO LIKE '%/* leasehold listener%'")
        return sorted(
            str(info).partition("*/ ")[2].partition("(")[0] for (info,) in seen if "PROCESSLIST" not in str(info)
        )

    async def story() -> None:
        await backends[0].try_acquire(claim())
        places = [await backend.join(claim()) for backend in backends]
        eventually(lambda: asleep() == ["GET_LOCK", "GET_LOCK", "SLEEP"])
        first = next(backend for backend in backends if backend._listener._has_user_lock)
        await first.close()
        eventually(lambda: asleep() == ["GET_LOCK", "SLEEP"])
        assert len(places) == 3

    run(story())


def test_a_waiter_is_woken_whether_its_listener_sleeps_or_waits(backends: list[Any]) -> None:
    holder = backends[0]

    async def story() -> None:
        held = await holder.try_acquire(claim())
        crowds = backends[1:]
        places = [await crowd.join(claim()) for crowd in crowds]
        eventually(lambda: all(listens(crowd) for crowd in crowds))
        places = [await crowd.turn(place) for crowd, place in zip(crowds, places, strict=True)]
        eventually(lambda: any(crowd._listener._has_user_lock for crowd in crowds))
        for crowd, place in zip(crowds, places, strict=True):
            place.signal.clear()
            await holder.release(held)
            until = time.monotonic() + 60
            while not place.signal.is_set() and time.monotonic() < until:
                time.sleep(0.01)
            assert place.signal.is_set()
            held, holder_ = await crowd.turn(place), crowd
            assert isinstance(held, Grant)
            await holder_.renew([held])

    run(story())
