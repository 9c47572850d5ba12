"""The pieces of a batch: who is next, what the next tenure takes over from the one before, when a batch is over."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold import Holder, Mode
from leasehold._core import linger
from leasehold._core.batch import LONGEST, MOST, Batch, LocalTenure
from leasehold._core.batch import first_tenure as first_of
from leasehold._core.batch import next_tenure as next_of
from leasehold._core.linger import LingeringBatch, LingeringTenure
from leasehold._core.local_queue import LocalQueue, LocalWaiter
from leasehold._core.states import State
from leasehold._core.validity import believed_until
from leasehold.spi import Place
from leasehold.testing import ManualStore
from leasehold.values import Claim, Grant

NOW = 1_000.0
US = Holder("h", 1)
THREADS = [object() for _ in range(MOST + 9)]
SURE = believed_until(NOW, 30.0)


class Signal:
    def set(self) -> None: ...
    def clear(self) -> None: ...
    def is_set(self) -> bool:
        return False


def spec_of(max_hold: float | None = None) -> Any:
    return SimpleNamespace(name="x", key="k", ttl=30.0, holder=US, max_hold=max_hold)


def grant_of(spare: int = 9, ttl: float = 30.0, since: float | None = None) -> Grant:
    return Grant(Claim("k", "owner", 30.0, Mode.EXCLUSIVE, 1, 0.0, US), 100, ttl, since, True, spare)


def waiter_of(queue: LocalQueue, max_hold: float | None = None) -> LocalWaiter:
    call: Any = SimpleNamespace(spec=spec_of(max_hold))
    waiter = LocalWaiter(queue, call, Signal(), THREADS[queue.arrivals])
    queue.waiting.append(waiter)
    return waiter


def line(number: int = 0) -> tuple[LocalQueue, list[LocalWaiter]]:
    queue = LocalQueue(spec_of())
    return queue, [waiter_of(queue) for _ in range(number)]


def place_of(ahead: int) -> Place:
    return Place(grant_of().claim, Signal(), 1.0, ahead)


def test_a_waiter_elsewhere_is_overtaken_by_few_and_for_a_moment() -> None:
    assert (MOST, LONGEST) == (64, 0.05)


@pytest.mark.parametrize(("waiting", "wanted"), [(0, 0), (1, 0), (2, 1), (5, 4), (MOST + 1, MOST), (MOST + 9, MOST)])
def test_a_batch_wants_a_fence_for_each_but_the_first_and_not_too_many(waiting: int, wanted: int) -> None:
    assert line(waiting)[0].fences_wanted == wanted


def test_how_many_come_before_a_waiter_here_and_in_the_store() -> None:
    queue, waiters = line(3)
    assert [queue.ahead_of(waiter) for waiter in waiters] == [0, 1, 2]
    queue.place = place_of(7)
    assert [queue.ahead_of(waiter) for waiter in waiters] == [7, 8, 9]
    queue.drop(waiters[1])
    assert [queue.ahead_of(waiter) for waiter in waiters] == [7, 7, 8]


def test_whoever_leaves_the_line_leaves_it_once_and_alone() -> None:
    queue, (first, second, third) = line(3)
    queue.drop(third)
    queue.drop(third)
    assert list(queue.waiting) == [first, second]
    tenure: Any = object()
    second.tenure = tenure  # it was served, and interrupted before the line was told
    queue.drop(second)
    assert list(queue.waiting) == [first]
    first.tenure = tenure
    queue.drop(first)
    queue.drop(first)
    assert not queue.waiting


def test_who_is_next_came_before_the_batch_began_and_is_not_the_delegate_while_it_asks() -> None:
    queue, (first, second) = line(2)
    batch = Batch(queue, grant_of(), NOW, SURE)
    late = waiter_of(queue)
    assert queue.next_waiter(batch) is first
    queue.delegate = first
    assert queue.next_waiter(batch) is first, "it has no place, and asks for none yet"
    queue.is_asking = True
    assert queue.next_waiter(batch) is second, "a request of the first is under way"
    queue.place, queue.is_asking = place_of(0), False
    assert queue.next_waiter(batch) is first
    queue.delegate, queue.place, queue.is_asking = second, None, True
    assert queue.next_waiter(batch) is first
    queue.drop(first)
    queue.drop(second)
    assert list(queue.waiting) == [late]
    assert queue.next_waiter(batch) is None
    queue.delegate = late
    assert queue.next_waiter(Batch(queue, grant_of(), NOW, SURE)) is None, "there is no second one"
    queue.drop(late)
    assert queue.next_waiter(batch) is None


def test_a_batch_serves_all_in_line_if_it_has_a_fence_for_each_and_time() -> None:
    queue, (first, second) = line(2)
    tenure = first_of(queue, first, grant_of(spare=1), NOW, NOW)
    batch = tenure.batch
    queue.drop(first)
    assert batch.serves_all_until(second, NOW) == batch.until
    assert batch.serves_all_until(second, batch.until) == 0.0, "its time is over"
    late = waiter_of(queue)
    assert batch.serves_all_until(late, NOW) == 0.0, "it came later"
    assert batch.serves_all_until(second, NOW) == 0.0, "one fence for two"
    queue.drop(late)
    tenure.state = State.LOST
    assert batch.serves_all_until(second, NOW) == 0.0, "its tenure has ended"


def test_a_line_is_idle_when_nobody_stands_in_it_and_none_can_come_back_from_a_batch() -> None:
    queue, (first, second) = line(2)

    def is_idle() -> bool:
        return queue.is_idle

    assert not is_idle()
    queue.drop(second)
    queue.delegate = first
    queue.drop(first)
    assert not is_idle()
    queue.delegate = None
    assert is_idle()
    tenure = first_of(queue, second, grant_of(), NOW, NOW)
    queue.batch = tenure.batch
    assert not is_idle()
    tenure.state = State.RELEASED
    assert is_idle()
    tenure.state = State.HELD
    del tenure
    assert is_idle(), "it was dropped"


@pytest.mark.parametrize(
    ("facts", "passes"),
    [
        ({}, True),
        ({"left": 0}, False),
        ({"left": 1}, True),
        ({"now": NOW + LONGEST - 0.001}, True),
        ({"now": NOW + LONGEST}, False),
        ({"trusted": NOW + 15.0}, True),
        ({"trusted": NOW + 14.999}, False),
        ({"perhaps_freed": True}, False),
    ],
)
def test_when_a_batch_passes_its_tenure_on(facts: dict[str, Any], passes: bool) -> None:
    queue, (first,) = line(1)
    tenure = first_of(queue, first, grant_of(), NOW, NOW)
    batch = tenure.batch
    batch.left, batch.trusted = facts.get("left", batch.left), facts.get("trusted", batch.trusted)
    tenure.perhaps_freed = facts.get("perhaps_freed", False)
    assert batch.passes_on(tenure, facts.get("now", NOW)) is passes


@pytest.mark.parametrize(("spare", "left"), [(0, 0), (9, 9), (MOST, MOST), (MOST + 9, MOST)])
def test_a_batch_has_as_many_hand_overs_as_the_store_keeps_fences_but_not_too_many(spare: int, left: int) -> None:
    queue, _ = line(1)
    assert Batch(queue, grant_of(spare), NOW, SURE).left == left


@pytest.mark.parametrize(("max_hold", "deadline"), [(None, SURE), (3.0, NOW + 3), (99.0, SURE)])
def test_the_first_of_a_batch_has_the_grant_of_the_store(max_hold: float | None, deadline: float) -> None:
    queue, _ = line()
    waiter = waiter_of(queue, max_hold)
    tenure = first_of(queue, waiter, grant_of(), NOW, NOW + 2)
    batch = tenure.batch
    assert (tenure.grant, tenure.deadline, tenure.renewable) == (grant_of(), deadline, True)
    assert tenure.taker == waiter.taker == id(THREADS[0])
    assert batch.trusted == SURE, "whatever max_hold the first has"
    assert (batch.until, batch.last) == (NOW + 2 + LONGEST, queue.arrivals)
    assert batch.present is not None
    assert batch.present() is tenure
    assert not batch.is_over()


@pytest.mark.parametrize(("max_hold", "deadline"), [(None, NOW + 20), (3.0, NOW + 1 + 3), (99.0, NOW + 20)])
def test_the_next_of_a_batch_takes_over_what_is_known_of_the_grant(max_hold: float | None, deadline: float) -> None:
    queue, (first,) = line(1)
    before = first_of(queue, first, grant_of(), NOW, NOW)
    before.due, before.ttl, before.confirmed = NOW + 4, 31.0, NOW + 0.5
    before.under_way, before.failure, before.doubtful = 2, "away", True
    before.batch.trusted = NOW + 20
    waiter = waiter_of(queue, max_hold)
    following = next_of(before, waiter, NOW + 1)
    assert (following.grant.fence, following.grant.spare, following.grant.abandoned) == (101, 8, False)
    assert (following.grant.claim, following.grant.ttl) == (before.grant.claim, 30.0)
    assert (following.deadline, following.due, following.ttl) == (deadline, NOW + 4, 31.0)
    assert (following.confirmed, following.under_way, following.failure) == (NOW + 0.5, 2, "away")
    assert (following.doubtful, following.batch, following.renewable) == (True, before.batch, True)
    assert following.taker == waiter.taker != before.taker
    assert (following.state, following.handles) == (State.HELD, 1)


@pytest.mark.parametrize(
    ("sent", "now", "ttl", "trusted"),
    [
        (NOW + 5, NOW + 6, 30.0, believed_until(NOW + 5, 30.0)),
        (NOW + 5, NOW + 6, 1.0, SURE),  # the deadline never goes back
        (NOW + 5, NOW + 40, 30.0, SURE),  # too late
    ],
)
def test_a_renewal_of_one_is_a_renewal_of_the_batch(sent: float, now: float, ttl: float, trusted: float) -> None:
    queue, (first,) = line(1)
    tenure = first_of(queue, first, grant_of(), NOW, NOW)
    tenure.confirm(grant_of(ttl=ttl), sent, now)
    assert tenure.batch.trusted == trusted


# A lock that lingers


def parked_lease(**options: Any) -> tuple[ManualStore, Any, Any, LingeringTenure]:
    """A client with a lease that was released, and lingers."""
    store = ManualStore(autojump=None)
    client = store.connect()
    lock = client.lock("x", linger=0.5, **options)
    lock.acquire().release()
    opened = client._twin._open()
    (parked,) = opened.parked.values()
    return store, client, opened, parked


@pytest.mark.parametrize(
    ("change", "suits"),
    [
        (lambda opened, parked: None, True),
        (lambda opened, parked: setattr(parked, "state", State.LOST), False),
        (lambda opened, parked: setattr(parked.batch, "until", NOW), False),
        (lambda opened, parked: setattr(parked.batch, "until", NOW + 0.001), True),
        (lambda opened, parked: setattr(parked.batch, "trusted", NOW + 15), True),
        (lambda opened, parked: setattr(parked.batch, "trusted", NOW + 14.999), False),
        (lambda opened, parked: opened.waiting_calls.freeze(), False),
        (lambda opened, parked: opened.note_fence("leasehold:x", 10**9), False),
        (lambda opened, parked: opened.note_fence("leasehold:y", 10**9), True),
    ],
    ids=["as it is", "lost", "over", "nearly over", "half", "less", "leaving", "fence", "other fence"],
)
def test_when_a_parked_lease_may_be_taken(change: Any, suits: bool) -> None:
    store, client, opened, parked = parked_lease()
    change(opened, parked)
    assert linger._suits(opened, client.lock("x")._twin._spec, parked, NOW) is suits
    store.close()


@pytest.mark.parametrize(
    ("options", "suits"),
    [
        ({}, True),
        ({"linger": 0.2}, True),
        ({"max_hold": 5}, True),
        ({"ttl": 29}, False),
        ({"reason": "another"}, False),
        ({"renew": False}, False),
        ({"reentrant": True}, False),
        ({"fair": "strict"}, False),
        ({"min_hold": 1}, False),
    ],
    ids=str,
)
def test_for_which_locks_a_parked_lease_is_good(options: dict[str, Any], suits: bool) -> None:
    store, client, opened, parked = parked_lease()
    assert linger._suits(opened, client.lock("x", **options)._twin._spec, parked, NOW) is suits
    store.close()


def test_a_parked_lease_is_the_same_grant_under_the_next_fence() -> None:
    store = ManualStore(autojump=None)
    with store.connect() as client:
        lease = client.lock("x", linger=0.5, max_hold=3).acquire()
        before: Any = lease._twin._tenure
        assert isinstance(before, LingeringTenure)
        batch: LingeringBatch = before.batch
        assert (before.deadline, batch.trusted, batch.left) == (NOW + 3, SURE, MOST)
        assert before.taker == id(client._twin._runtime.current())
        before.due, before.ttl, before.confirmed = NOW + 4, 31.0, NOW + 0.5
        before.under_way, before.failure = 2, "away"
        lease.release()
        opened = client._twin._open()
        (parked,) = opened.parked.values()
        assert (parked.grant.fence, parked.grant.spare) == (before.grant.fence + 1, before.grant.spare - 1)
        assert (parked.due, parked.ttl, parked.confirmed) == (NOW + 4, 31.0, NOW + 0.5)
        assert (parked.under_way, parked.failure, parked.deadline) == (2, "away", SURE)
        assert (batch.left, batch.until, batch.is_parked) == (MOST - 1, NOW + 0.5, True)
        assert batch.present == weakref.ref(parked)
        assert parked.next_action() == NOW + 0.5, "the keeper looks at the end of its stay"
        parked.under_way, parked.failure = 0, None
        parked.taker = 0
        store.clock.advance(0.25)
        again = client.lock("x", linger=0.5, max_hold=2).acquire()
        assert again._twin._tenure is parked
        assert parked.taker == id(client._twin._runtime.current())
        assert (parked.deadline, parked.handles, batch.is_parked) == (NOW + 2.25, 1, False)
        assert parked.next_action() == NOW + 2.25
        again.release()
        assert batch.until == NOW + 0.5, "counted from the first release, however often it is taken"


def test_what_lingers_keeps_no_more_fences_than_a_batch() -> None:
    opened: Any = None
    assert LingeringBatch(opened, grant_of(MOST + 9), 0.5, SURE).left == MOST
    assert LingeringBatch(opened, grant_of(3), 0.5, SURE).left == 3


def test_a_lease_of_a_batch_goes_back_to_the_store_where_there_are_no_lines() -> None:
    queue, (first,) = line(1)
    tenure = first_of(queue, first, grant_of(), NOW, NOW)
    opened: Any = SimpleNamespace(local=None)
    assert isinstance(tenure, LocalTenure)
    assert tenure.pass_on(opened) is False
