"""Wake-ups on MariaDB: no release misses the waiter that is next, also while others join or the listener starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.kit import rules
from leasehold.spi import Place
from leasehold.values import Claim, Holder, Mode
from tests.stores.support import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator


def claim(name: str = "job") -> Claim:
    return Claim(f"leasehold:{name}", ThreadRuntime().owner(), 60.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))


@pytest.fixture
def backends(mariadb_database: str) -> Iterator[tuple[Any, Any]]:
    pair = tuple(find_store(mariadb_database).open_backend(ThreadRuntime()) for _ in range(2))
    yield pair[0], pair[1]
    for backend in pair:
        run(backend.close())


def test_a_waiter_that_joins_does_not_get_the_wake_up_of_the_first_in_line(backends: tuple[Any, Any]) -> None:
    listener = backends[0]._listener
    first, second, joining = (listener.expect(claim()) for _ in range(3))
    first.number, second.number = 7, 8  # the place of the third is not confirmed yet
    listener._wake_first()
    assert first.signal.is_set()
    assert joining.signal.is_set(), "it may be the one that was meant"
    assert not second.signal.is_set()


def test_a_claim_that_has_been_granted_gets_no_wake_up_of_those_behind_it(backends: tuple[Any, Any]) -> None:
    holder, crowd = backends

    async def story() -> None:
        held = await holder.try_acquire(claim())
        places = [await crowd.join(claim()) for _ in range(2)]
        await holder.release(held)
        granted = await crowd.turn(places[0])
        assert not isinstance(granted, Place)
        for place in places:
            place.signal.clear()
        crowd._listener._wake_first()
        assert [place.signal.is_set() for place in places] == [False, True]

    run(story())


def test_a_release_under_way_reads_the_name_of_a_listener_that_has_just_started(backends: tuple[Any, Any]) -> None:
    """It decided before the waiter could be woken; written as it is, the waiter would sleep on beside a free lock."""
    holder, crowd = backends

    async def story() -> None:
        held = await holder.try_acquire(claim())
        place = await crowd.join(claim())
        rows = await holder._read(held.claim.key, holder._runtime.now() + 60)
        assert holder._decided(rows, lambda rows: rules.release(rows, held)) is True
        eventually(lambda: crowd._listener.name is not None)
        assert isinstance(await crowd.turn(place), Place)
        assert not await holder._is_written(rows, holder._runtime.now() + 60), "it has to be decided again"

    run(story())


def test_a_client_that_releases_and_closes_at_once_wakes_the_next_one(
    backends: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ends after its work must not leave the next one to its re-check."""
    leaving, crowd = backends
    monkeypatch.setattr(
        leaving._listener._wake_up_worker, "start", lambda: None
    )  # its worker does not come to it in time

    async def story() -> None:
        held = await leaving.try_acquire(claim())
        place = await crowd.join(claim())
        eventually(lambda: crowd._listener.name is not None)
        place = await crowd.turn(place)  # whose row has the name now
        assert isinstance(place, Place)
        place.signal.clear()
        await leaving.release(held)
        await leaving.close()
        eventually(place.signal.is_set)

    run(story())


def test_a_crowded_name_is_forgotten_when_nobody_waits_any_more(backends: tuple[Any, Any]) -> None:
    holder, crowd = backends

    async def story() -> None:
        held = await holder.try_acquire(claim())
        waiting = claim()
        place = await crowd.join(waiting)
        await holder.release(held)
        granted = await crowd.turn(place)
        crowd._crowded.add(waiting.key)  # unless its turn was asked for by the rules, which saw that nobody waits
        assert await crowd.release(granted) is True
        assert crowd._crowded == set()
        again = await holder.try_acquire(claim())
        assert holder._crowded == set()
        assert await holder.release(again) is True

    run(story())
