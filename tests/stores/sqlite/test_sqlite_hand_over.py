"""A release of the SQLite store makes the first waiter of another client the holder: when, and from when on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from leasehold._backends.sqlite import rows
from leasehold._runtimes.threads import ThreadRuntime
from leasehold.errors import BackendRejected
from leasehold.kit import rules
from leasehold.values import MAX_FENCE, Mode
from tests.stores.sqlite.sqlite_support import FakeHost, Verbs, claim, granted, placed, refused
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from leasehold.values import Grant, LockState


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


@pytest.fixture
def one(tmp_path: Path, host: FakeHost) -> Iterator[Verbs]:
    verbs = Verbs(tmp_path / "locks.db", host)
    yield verbs
    verbs.close()


@pytest.fixture
def other(tmp_path: Path, host: FakeHost) -> Iterator[Verbs]:
    verbs = Verbs(tmp_path / "locks.db", host)
    yield verbs
    verbs.close()


def state_of(store: Verbs) -> LockState:
    state = store.inspect()
    assert state is not None
    return state


def test_a_release_makes_the_first_waiter_of_another_client_the_holder(one: Verbs, other: Verbs) -> None:
    first = granted(one.join(claim()))
    place, behind = placed(other.join(claim())), placed(one.join(claim()))
    assert one.release(first) is True
    assert [holding.holder for holding in state_of(one).holdings] == [place.claim.holder], (
        "it has asked for nothing yet"
    )
    assert state_of(one).waiting == (behind.claim.holder,)
    eventually(place.signal.is_set)
    grant = granted(other.turn(place))
    assert grant.fence > first.fence
    assert grant.fence == state_of(one).holdings[0].fence
    assert grant.spare == rules.SPARE == 64, "for others of its process, without a word to the file"
    assert other.release(grant) is True
    assert granted(one.turn(behind)).fence > grant.fence + 64


def test_a_hand_over_between_processes_takes_eleven_statements(one: Verbs, other: Verbs) -> None:
    first = granted(one.join(claim()))
    place = placed(other.join(claim()))
    one.release(first)
    behind = placed(one.join(claim()))
    held = granted(other.turn(place))
    statements: list[str] = []
    for client in (one, other):
        client.backend._file.perform(lambda connection: connection.set_trace_callback(statements.append))
    other.release(held)
    placed(other.join(claim()))
    granted(one.turn(behind))
    assert len(statements) == 11, statements


def test_a_waiter_takes_its_grant_while_another_process_writes(one: Verbs, other: Verbs) -> None:
    first = granted(one.join(claim()))
    place = placed(other.join(claim()))
    one.release(first)

    def in_the_middle_of_a_change(connection: object) -> Grant:
        connection.execute("BEGIN IMMEDIATE")  # type: ignore[attr-defined]
        try:
            return granted(other.turn(place, 0.0))
        finally:
            connection.execute("ROLLBACK")  # type: ignore[attr-defined]

    assert one.backend._file.perform(in_the_middle_of_a_change).fence > first.fence


def test_a_hand_over_counts_from_when_it_was_made(one: Verbs, other: Verbs, host: FakeHost) -> None:
    first = granted(one.join(claim()))
    place = placed(other.join(claim(ttl=30)))
    one.release(first)
    host.pass_time(2)  # the waiter was paused
    now = ThreadRuntime().now()
    grant = granted(other.turn(place))
    assert grant.since is not None
    assert grant.since == pytest.approx(now - 2, abs=1)
    assert grant.since < now - 1.5


def test_a_hand_over_is_short_until_its_holder_renews_it(one: Verbs, other: Verbs) -> None:
    first = granted(one.join(claim()))
    place = placed(other.join(claim(ttl=30)))
    one.release(first)
    assert state_of(one).holdings[0].expires_in < 4, "one that was stopped while it waited keeps it no longer"
    grant = granted(other.turn(place))
    assert grant.ttl < 4
    (renewed,) = other.renew(grant)
    assert granted(renewed).ttl == 30
    assert state_of(one).holdings[0].expires_in > 20


def test_a_hand_over_that_was_renewed_since_is_told_with_all_of_its_time(one: Verbs, other: Verbs) -> None:
    """The answer to the first question was lost; that it was renewed all the same is known by when it ends."""
    first = granted(one.join(claim()))
    place = placed(other.join(claim(ttl=30)))
    one.release(first)
    grant = granted(other.turn(place))
    assert grant.ttl == 3.0
    granted(other.renew(grant)[0])
    again = granted(other.turn(place))
    assert (again.fence, again.ttl) == (grant.fence, 30.0)


def test_a_pause_while_the_clocks_are_read_makes_no_grant_younger(one: Verbs, other: Verbs, host: FakeHost) -> None:
    first = granted(one.join(claim()))
    place = placed(other.join(claim(ttl=30)))
    handed_over = host.now()
    one.release(first)

    def clock_of_the_holder() -> float:
        host.pass_time(1)
        return host.now()

    other.backend._ledger._now = clock_of_the_holder
    grant = granted(other.turn(place))
    assert grant.since is not None
    assert grant.since <= handed_over


def test_a_waiter_that_wakes_after_its_grant_ran_out_holds_nothing(one: Verbs, other: Verbs, host: FakeHost) -> None:
    first = granted(one.join(claim()))
    place = placed(other.join(claim(ttl=30)))
    one.release(first)
    host.pass_time(3)
    refused(other.turn(place))
    assert granted(one.try_acquire(claim())).abandoned is True


def test_a_waiter_that_has_missed_a_recheck_is_asked_and_not_made_the_holder(
    one: Verbs, other: Verbs, host: FakeHost
) -> None:
    first = granted(one.join(claim(ttl=100)))
    place = placed(other.join(claim()))
    host.pass_time(2)
    one.release(first)
    assert state_of(one).holdings == ()
    assert state_of(one).waiting == (place.claim.holder,)
    granted(other.turn(place))


def test_readers_and_permits_ask_for_themselves(one: Verbs, other: Verbs) -> None:
    first = granted(one.join(claim()))
    readers = [placed(other.join(claim(mode=Mode.SHARED))) for _ in range(2)]
    one.release(first)
    assert state_of(one).holdings == ()
    for place in readers:
        eventually(place.signal.is_set)
        granted(other.turn(place))


def test_a_hand_over_to_a_dead_client_goes_on_to_the_next(one: Verbs, other: Verbs, tmp_path: Path) -> None:
    first = granted(one.join(claim()))
    dead = placed(other.join(claim()))
    following = placed(one.join(claim()))
    token = "0123456789abcdef"  # of a pipe that nobody reads, as after a kill
    os.mkfifo(tmp_path / "locks.db-wake" / token)
    bell = ("UPDATE claim SET bell = ? WHERE owner = ?", (token, dead.claim.owner))
    one.backend._file.perform(lambda connection: connection.execute(*bell))
    assert one.release(first) is True
    assert [holding.holder for holding in state_of(one).holdings] == []
    assert following.signal.is_set()
    granted(one.turn(following))
    refused(other.turn(dead))


def test_what_a_dead_waiter_was_told_of_the_holder_before_it_the_next_one_learns(
    one: Verbs, other: Verbs, host: FakeHost, tmp_path: Path
) -> None:
    granted(one.join(claim(ttl=1)))
    dead = placed(other.join(claim()))
    following = placed(one.join(claim()))
    token = "0123456789abcdef"
    os.mkfifo(tmp_path / "locks.db-wake" / token)
    bell = ("UPDATE claim SET bell = ? WHERE owner = ?", (token, dead.claim.owner))
    one.backend._file.perform(lambda connection: connection.execute(*bell))
    host.pass_time(1)
    refused(one.try_acquire(claim()))  # finds that the holder is gone, and hands over to one that is gone as well
    assert following.signal.is_set()
    assert granted(one.turn(following)).abandoned is True


def test_a_waiter_of_the_same_client_is_called_and_asks_for_itself(one: Verbs) -> None:
    first = granted(one.join(claim()))
    place = placed(one.join(claim(ttl=30)))
    one.release(first)
    assert state_of(one).holdings == ()
    assert place.signal.is_set()
    assert granted(one.turn(place)).ttl == 30


def test_nobody_is_made_the_holder_with_a_fence_that_is_too_high(one: Verbs, other: Verbs, host: FakeHost) -> None:
    """The release goes well, and the waiter gets the error when it asks."""
    first = granted(one.join(claim()))
    place = placed(other.join(claim()))
    host.wall_time = (MAX_FENCE - 10) / 1e6
    assert one.release(first) is True
    assert state_of(one).holdings == ()
    with pytest.raises(BackendRejected, match="clock of this host"):
        other.turn(place)


def test_a_broken_hand_over_is_not_taken(one: Verbs, other: Verbs) -> None:
    first = granted(one.join(claim()))
    place = placed(other.join(claim()))
    one.release(first)
    assert one.break_("ns:name", state_of(one).holdings[0].fence)
    refused(other.turn(place))


def test_what_a_holder_left_behind_is_told_to_the_one_that_it_is_handed_to(
    one: Verbs, other: Verbs, host: FakeHost
) -> None:
    granted(one.join(claim(ttl=1)))
    place = placed(other.join(claim()))
    host.pass_time(1)
    placed(one.join(claim()))  # finds that the holder is gone
    assert granted(other.turn(place)).abandoned is True


@pytest.mark.parametrize("number", [3, rows.FEW + 5], ids=["few", "many"])
def test_a_queue_is_served_in_order_however_many_wait(one: Verbs, other: Verbs, number: int, host: FakeHost) -> None:
    held = granted(one.join(claim()))
    places = [placed((one, other)[turn % 2].join(claim())) for turn in range(number)]
    assert [place.ahead for place in places] == list(range(number))
    fences = [held.fence]
    owner = one
    for turn, place in enumerate(places):
        owner.release(held)
        host.pass_time(0.001)
        owner = (one, other)[turn % 2]
        held = granted(owner.turn(place))
        fences.append(held.fence)
    assert fences == sorted(set(fences))
    owner.release(held)
    assert one.inspect() is None
    assert granted(one.try_acquire(claim())).fence > fences[-1]
