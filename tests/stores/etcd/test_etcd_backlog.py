"""Those who wait inside an etcd client: who may join the store's line, and who is called when."""

from __future__ import annotations

from leasehold._runtimes.threads import ThreadRuntime
from leasehold.backends.etcd.backlog import MOST_SEATS, Backlog

LANE = b"lane"


def full() -> Backlog:
    backlog = Backlog(ThreadRuntime())
    for number in range(MOST_SEATS):
        assert backlog.has_room(LANE, f"seated {number}")
        backlog.sit(LANE, f"seated {number}")
    return backlog


def later() -> float:
    return ThreadRuntime().now() + 60


def test_only_so_many_wait_in_the_store() -> None:
    backlog = full()
    assert not backlog.has_room(LANE, "x")
    assert backlog.has_room(b"another lane", "x")


def test_the_first_inside_is_called_when_a_seat_is_left() -> None:
    backlog = full()
    first, _ = backlog.stand(LANE, "first", later())
    second, ahead = backlog.stand(LANE, "second", later())
    assert ahead == 1
    backlog.leave(LANE, "seated 3")
    assert first.is_set()
    assert not second.is_set()
    assert backlog.has_room(LANE, "first")
    assert not backlog.has_room(LANE, "second")
    assert not backlog.has_room(LANE, "just come")


def test_leaving_twice_makes_room_once() -> None:
    backlog = full()
    backlog.leave(LANE, "seated 3")
    backlog.leave(LANE, "seated 3")
    backlog.sit(LANE, "x")
    assert not backlog.has_room(LANE, "y")


def test_who_goes_to_the_store_lets_the_next_follow_while_there_is_room() -> None:
    backlog = full()
    for owner in ("first", "second", "third"):
        backlog.stand(LANE, owner, later())
    second, _ = backlog.stand(LANE, "second", later())
    third, _ = backlog.stand(LANE, "third", later())
    backlog.leave(LANE, "seated 1")
    backlog.leave(LANE, "seated 2")
    backlog.sit(LANE, "first")
    assert second.is_set()
    backlog.sit(LANE, "second")
    assert not third.is_set()


def test_who_stopped_asking_is_in_nobodys_way() -> None:
    backlog = full()
    backlog.stand(LANE, "gone", ThreadRuntime().now() - 1)
    backlog.stand(LANE, "here", later())
    backlog.leave(LANE, "seated 1")
    assert backlog.has_room(LANE, "here")
    assert "gone" not in backlog


def test_nothing_is_kept_of_those_who_left() -> None:
    backlog = full()
    backlog.stand(LANE, "inside", later())
    for number in range(MOST_SEATS):
        backlog.leave(LANE, f"seated {number}")
    backlog.leave(LANE, "inside")
    assert not backlog._seated
    assert not backlog._lines
    assert not backlog._signals
    assert not backlog._until
