"""What a single query of MariaDB must leave to the rules: places and hand-overs beside anything but a plain crowd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.mysql import queue
from leasehold._backends.mysql.queue import HandOver, PlaceRow
from leasehold._record import replace
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.errors import BackendRejected
from leasehold.kit.rules import SPARE
from leasehold.spi import Place
from leasehold.values import MAX_FENCE, Claim, Grant, Holder, Mode, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.lab.mariadb import MariadbServer

KEY = "leasehold:job"


def claim(**changes: Any) -> Claim:
    return replace(
        Claim(KEY, ThreadRuntime().owner(), 60.0, Mode.EXCLUSIVE, 1, 0.0, Holder("db-3", 7, "ä'\\", "the report")),
        **changes,
    )


class Table:
    """The claims of a name, changed behind the back of the store."""

    def __init__(self, server: MariadbServer, url: str) -> None:
        self._server = server
        self._database = url.rpartition("/")[2]

    def run(self, query: str) -> list[tuple[object, ...]]:
        return self._server.run(query, self._database)

    def change(self, what: str, which: str, table: str = "claim") -> None:
        self.run(f"UPDATE leasehold_{table} SET {what} WHERE {which}")

    def dump(self) -> list[tuple[object, ...]]:
        claims = self.run("SELECT number, state, fence, expires, owner FROM leasehold_claim ORDER BY number")
        return [*claims, *self.run("SELECT shape, fence FROM leasehold_lock")]


@pytest.fixture
def mariadb_database(emptied: str) -> str:
    """One for all tests of this file; its tables are empty."""
    return emptied


@pytest.fixture
def table(mariadb: MariadbServer, mariadb_database: str) -> Table:
    return Table(mariadb, mariadb_database)


@pytest.fixture
def backend(mariadb_database: str) -> Iterator[Any]:
    opened = find_store(mariadb_database).open_backend(ThreadRuntime())
    yield opened
    run(opened.close())


async def crowd(backend: Any, waiting: int = 1, **changes: Any) -> tuple[Grant, list[Any]]:
    held = await backend.try_acquire(claim())
    return held, [await backend.join(claim(**changes)) for _ in range(waiting)]


async def handed_over(backend: Any, grant: Grant) -> HandOver:
    return HandOver.from_results(await backend._execute(queue.hand_over(grant, 1)))


BESIDE_A_CROWD = {
    "an expired holder": ("expires = 1", "state = 1"),
    "an expired waiter": ("expires = 1", "state = 3"),
    "one that is kept": ("state = 2", "number = 3"),
    "a waiting reader": ("mode = 'shared'", "number = 3"),
    "a broken holder": ("broken = '\"stuck\"'", "state = 1"),
    "a holder with a min_hold": ("min_hold = 1", "state = 1"),
    "another owner": ("owner = 'other'", "state = 1"),
    "another fence": ("fence = fence + 1", "state = 1"),
}


@pytest.mark.parametrize("case", BESIDE_A_CROWD)
def test_a_hand_over_that_does_not_fit_changes_nothing(backend: Any, table: Table, case: str) -> None:
    async def story() -> None:
        held, _ = await crowd(backend, 3)
        table.change(*BESIDE_A_CROWD[case])
        before = table.dump()
        assert await handed_over(backend, held) == HandOver(False, None)
        assert table.dump() == before

    run(story())


@pytest.mark.parametrize(
    ("what", "done"),
    [
        ("abandoned_until = 1", False),
        (f"fence = {MAX_FENCE - SPARE}", False),
        (f"fence = {MAX_FENCE - SPARE - 1}", True),
        ("shape = 1", False),
    ],
)
def test_a_hand_over_keeps_to_what_the_row_of_the_name_says(backend: Any, table: Table, what: str, done: bool) -> None:
    """At the highest fences the rules refuse, with a message; a vanished holder is news for the next one."""

    async def story() -> None:
        held, _ = await crowd(backend)
        table.change(what, "true", "lock")
        assert (await handed_over(backend, held)).is_done is done
        if done:
            ((fence,),) = table.run("SELECT fence FROM leasehold_lock")
            assert fence == MAX_FENCE

    run(story())


def test_a_hand_over_tells_whom_to_wake_and_writes_the_range(backend: Any, table: Table) -> None:
    async def story() -> None:
        held, (first, second) = await crowd(backend, 2)
        table.change("listener = '7:ab'", "number = 2")
        assert await handed_over(backend, held) == HandOver(True, b"7:ab")
        granted = await backend.turn(first)
        assert isinstance(granted, Grant)
        assert granted.fence > held.fence
        assert granted.spare == SPARE
        ((fence,),) = table.run("SELECT fence FROM leasehold_lock")
        assert fence == granted.fence + SPARE
        assert isinstance(await backend.turn(second), Place)

    run(story())


def test_fences_of_a_hand_over_start_above_the_floor(backend: Any, table: Table) -> None:
    async def story() -> None:
        held, (place,) = await crowd(backend)
        floor = held.fence + 10**15
        done = HandOver.from_results(await backend._execute(queue.hand_over(held, floor)))
        assert done.is_done
        granted = await backend.turn(place)
        assert granted.fence == floor

    run(story())


@pytest.mark.parametrize(
    ("what", "which"),
    [
        ("expires = 1", "state = 3"),
        ("state = 2", "state = 1"),
        ("mode = 'permit'", "state = 1"),
        ("state = 4", "true"),
    ],
    ids=["expired waiter", "kept", "permits", "nobody holds or waits"],
)
def test_a_place_beside_anything_but_a_plain_crowd_is_left_to_the_rules(
    backend: Any, table: Table, what: str, which: str
) -> None:
    async def story() -> None:
        await crowd(backend)
        table.change(what, which)
        before = table.dump()
        results = await backend._execute(queue.join_queue(claim(), None))
        assert results[-1].rows == []
        assert table.dump() == before

    run(story())


def test_a_place_behind_readers_is_one_query_and_has_every_fact_of_its_claim(backend: Any, table: Table) -> None:
    async def story() -> None:
        for _ in range(2):
            await backend.try_acquire(claim(mode=Mode.SHARED))
        await backend.join(claim())
        backend._crowded.add(KEY)
        waiting = claim(min_hold=2.5, ttl=33.0)
        place = await backend.join(waiting)
        assert (place.ahead, place.holder) == (1, waiting.holder)
        ((mode, capacity, ttl, min_hold, state, lifetime),) = table.run(
            "SELECT CAST(mode AS CHAR), capacity, ttl, min_hold, state, expires - since FROM leasehold_claim "
            f"WHERE owner = '{waiting.owner}'"
        )
        assert (mode, capacity, ttl, min_hold, state) == ("exclusive", 1, 33_000_000, 2_500_000, 3)
        assert lifetime == 3_000_000, "a waiter that vanishes keeps nobody waiting for its ttl"
        short = claim(ttl=1.5)
        await backend.join(short)
        ((lifetime,),) = table.run(f"SELECT expires - since FROM leasehold_claim WHERE owner = '{short.owner}'")
        assert lifetime == 1_500_000

    run(story())


def test_a_place_counts_only_waiters_that_live_ahead_of_it(backend: Any, table: Table) -> None:
    async def story() -> None:
        _, places = await crowd(backend, 4)
        table.change("expires = 1", "number = 2")
        number = 4
        results = await backend._execute(queue.read_place(places[2].claim, number))
        (values,) = results[-1].rows
        row = PlaceRow.from_values(places[2].claim, values)
        assert (row.number, row.ahead, row.is_kept) == (4, 1, False)
        assert row.holder_expires is not None
        table.change("state = 2", "state = 1")
        (values,) = (await backend._execute(queue.read_place(places[2].claim, number)))[-1].rows
        assert PlaceRow.from_values(places[2].claim, values).is_kept
        for other in (replace(places[2].claim, owner="x"), replace(places[2].claim, key="leasehold:other")):
            assert (await backend._execute(queue.read_place(other, number)))[-1].rows == []

    run(story())


def test_a_place_is_kept_alive_with_its_present_listener_and_a_dead_one_is_not(backend: Any, table: Table) -> None:
    async def story() -> None:
        backend._listener.ensure = lambda: b"7:new"
        _, (place,) = await crowd(backend)
        place.waiter.listener = b"7:new"
        table.change("expires = expires - 1000000", "state = 3")
        ((before,),) = table.run("SELECT expires FROM leasehold_claim WHERE state = 3")
        assert isinstance(await backend.turn(place), Place)
        ((expires, listener),) = table.run(
            "SELECT expires, CAST(listener AS CHAR) FROM leasehold_claim WHERE state = 3"
        )
        assert (expires > before, listener) == (True, "7:new")  # type: ignore[operator]
        table.change("expires = 1", "state = 3")
        assert isinstance(await backend.turn(place), Refusal), "it stands in line again then"

    run(story())


@pytest.mark.parametrize("way", ["at once", "by the rules"])
def test_above_the_highest_fence_nothing_is_granted(backend: Any, way: str) -> None:
    async def story() -> None:
        await backend.raise_fence(KEY, MAX_FENCE)
        wanted = claim() if way == "at once" else claim(min_hold=1.0)
        with pytest.raises(BackendRejected, match="fence"):
            await backend.try_acquire(wanted)
        assert await backend.inspect(KEY) is None
        await backend.raise_fence("leasehold:other", MAX_FENCE - 1)
        assert (await backend.try_acquire(replace(wanted, key="leasehold:other"))).fence == MAX_FENCE

    run(story())


def test_a_reading_by_name_finds_what_is_in_use_and_has_not_run_out(backend: Any, table: Table) -> None:
    async def story() -> None:
        for name in ("a", "a b", "b", "over"):
            await backend.try_acquire(claim(key=f"leasehold:{name}"))
        free = await backend.try_acquire(claim(key="leasehold:a free"))
        await backend.release(free)
        table.change("expires = 1", "name = 'leasehold:over'", "lock")
        assert [state.name for state in await backend.list("leasehold:")] == [
            "leasehold:a", "leasehold:a b", "leasehold:b",
        ]  # fmt: skip
        assert [state.name for state in await backend.list("leasehold:a")] == ["leasehold:a", "leasehold:a b"]
        assert await backend.inspect("leasehold:over") is None

    run(story())
