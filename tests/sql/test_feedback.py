"""What a resource has seen is told to the store, so that a store that has gone back heals by itself, within limits."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold import events
from leasehold.errors import FenceAhead, StaleFence
from leasehold.sql import guard
from leasehold.testing import ManualStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AN_HOUR = 3_600_000_000


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "data.db")) as connection:
        yield connection


def pass_guard(database: sqlite3.Connection, lease: leasehold.Lease | int, resource: str | None = None) -> None:
    with database:
        guard(database, lease, resource=resource)


def test_store_that_has_gone_back_gives_a_higher_fence_after_one_refusal(database: sqlite3.Connection) -> None:
    pass_guard(database, 5_000, resource="leasehold:account")
    heard: list[object] = []
    with leasehold.connect("memory://") as client:
        client.on_event(heard.append)
        lock = client.lock("account")
        with lock.hold() as lease, pytest.raises(StaleFence) as caught:
            pass_guard(database, lease)
        assert type(caught.value) is StaleFence
        with lock.hold() as lease:
            pass_guard(database, lease)
            assert lease.fence > 5_000
    raised = [event for event in heard if isinstance(event, events.FenceRaised)]
    assert [(event.name, event.fence) for event in raised] == [("account", 5_000)]


@pytest.mark.parametrize("how", ["acquire", "try_acquire"])
def test_both_ways_to_get_a_lock_lift_the_fence(database: sqlite3.Connection, how: str) -> None:
    pass_guard(database, 5_000, resource="leasehold:account")
    with leasehold.connect("memory://") as client:
        lock = client.lock("account")
        with lock.hold() as lease, pytest.raises(StaleFence):
            pass_guard(database, lease)
        lease = getattr(lock, how)()
        pass_guard(database, lease)
        lease.release()


def test_refusal_of_a_late_writer_costs_the_store_nothing(database: sqlite3.Connection) -> None:
    heard: list[object] = []
    with leasehold.connect("memory://") as client:
        client.on_event(heard.append)
        lock = client.lock("account")
        stale = lock.acquire()
        stale.release()
        with lock.hold() as current:
            pass_guard(database, current)
        with pytest.raises(StaleFence):
            pass_guard(database, stale)
        with lock.hold() as later:
            assert later.fence == current.fence + 1
    assert not [event for event in heard if isinstance(event, events.FenceRaised)]


def test_number_far_above_the_store_is_not_believed_and_an_operator_is_asked(database: sqlite3.Connection) -> None:
    """One wrong value must not use up all fences."""
    wrong = 2**53 - 2**41
    pass_guard(database, wrong, resource="leasehold:account")
    with leasehold.connect("memory://") as client:
        lock = client.lock("account")
        for _ in range(2):
            with lock.hold() as lease, pytest.raises(FenceAhead, match="leasehold fence raise") as caught:
                pass_guard(database, lease)
            assert caught.value.highest == wrong
            assert lease.fence < 10
        client.raise_fence("account", wrong, reason="test")
        with lock.hold() as lease:
            pass_guard(database, lease)


@pytest.mark.parametrize(("seen", "is_healed"), [(AN_HOUR + 1, True), (AN_HOUR + 2, False)])
def test_limit_is_an_hour_above_what_the_store_has_given(
    database: sqlite3.Connection, seen: int, is_healed: bool
) -> None:
    pass_guard(database, seen, resource="leasehold:account")
    with leasehold.connect("memory://") as client:
        lock = client.lock("account")
        with lock.hold() as lease, pytest.raises(StaleFence):
            assert lease.fence == 1
            pass_guard(database, lease)
        with lock.hold() as lease:
            assert lease.fence == (seen + 1 if is_healed else 2)


def test_holder_that_was_paused_for_hours_is_late_and_not_ahead(database: sqlite3.Connection) -> None:
    """Fences are made from the time: a gap of more than an hour is normal for one whose lease is over."""
    pass_guard(database, 3 * AN_HOUR, resource="leasehold:account")
    store = ManualStore()
    with store.connect() as client:
        lease = client.lock("account", ttl=10, renew=False).acquire()
        store.clock.advance(3 * 3600)
        with pytest.raises(StaleFence) as caught:
            pass_guard(database, lease)
        assert type(caught.value) is StaleFence
        lease.release()


def test_hint_survives_a_store_that_does_not_answer(database: sqlite3.Connection) -> None:
    pass_guard(database, 5_000, resource="leasehold:account")
    store = ManualStore()
    with store.connect() as client:
        lock = client.lock("account")
        with lock.hold() as lease, pytest.raises(StaleFence):
            pass_guard(database, lease)
        store.faults.refuse_next("raise_fence")
        with lock.hold() as lease:
            assert lease.fence < 5_000
        with lock.hold() as lease:
            pass_guard(database, lease)
