"""The local queue of an etcd client: which claim may join the store's queue, and which waiter is woken when."""

from __future__ import annotations

from leasehold._backends.etcd.queue import MOST_IN_STORE, LocalQueue
from leasehold._runtimes.threads import ThreadRuntime

LOCK = b"lock"


def full() -> LocalQueue:
    queue = LocalQueue(ThreadRuntime())
    for number in range(MOST_IN_STORE):
        assert queue.has_room(LOCK, f"in store {number}")
        queue.move_to_store(LOCK, f"in store {number}")
    return queue


def later() -> float:
    return ThreadRuntime().now() + 60


def test_only_so_many_claims_wait_in_the_store() -> None:
    queue = LocalQueue(ThreadRuntime())
    assert [queue.enter(LOCK, str(number)) for number in range(MOST_IN_STORE)] == [True] * MOST_IN_STORE
    assert not queue.enter(LOCK, "x")
    assert queue.enter(b"another lock", "x")


def test_claim_does_not_enter_the_store_before_waiters_here() -> None:
    queue = full()
    queue.wait_here(LOCK, "first", later())
    queue.leave(LOCK, "in store 3")
    assert not queue.enter(LOCK, "just come")
    assert queue.enter(LOCK, "first")
    assert not queue.has_room(LOCK, "just come")


def test_the_first_waiter_is_woken_when_there_is_room_in_the_store() -> None:
    queue = full()
    first, _ = queue.wait_here(LOCK, "first", later())
    second, ahead = queue.wait_here(LOCK, "second", later())
    assert ahead == 1
    queue.leave(LOCK, "in store 3")
    assert first.is_set()
    assert not second.is_set()
    assert queue.has_room(LOCK, "first")
    assert not queue.has_room(LOCK, "second")
    assert not queue.has_room(LOCK, "just come")


def test_leaving_twice_makes_room_once() -> None:
    queue = full()
    queue.leave(LOCK, "in store 3")
    queue.leave(LOCK, "in store 3")
    queue.move_to_store(LOCK, "x")
    assert not queue.has_room(LOCK, "y")


def test_claim_that_moves_to_the_store_lets_the_next_follow_while_there_is_room() -> None:
    queue = full()
    for owner in ("first", "second", "third"):
        queue.wait_here(LOCK, owner, later())
    second, _ = queue.wait_here(LOCK, "second", later())
    third, _ = queue.wait_here(LOCK, "third", later())
    queue.leave(LOCK, "in store 1")
    queue.leave(LOCK, "in store 2")
    queue.move_to_store(LOCK, "first")
    assert second.is_set()
    queue.move_to_store(LOCK, "second")
    assert not third.is_set()


def test_waiter_that_stopped_asking_blocks_no_other() -> None:
    queue = full()
    queue.wait_here(LOCK, "gone", ThreadRuntime().now() - 1)
    queue.wait_here(LOCK, "here", later())
    queue.leave(LOCK, "in store 1")
    assert queue.has_room(LOCK, "here")
    assert "gone" not in queue


def test_nothing_is_kept_of_claims_that_left() -> None:
    queue = full()
    queue.wait_here(LOCK, "inside", later())
    for number in range(MOST_IN_STORE):
        queue.leave(LOCK, f"in store {number}")
    queue.leave(LOCK, "inside")
    assert not queue._in_store
    assert not queue._queues
    assert not queue._signals
    assert not queue._until
