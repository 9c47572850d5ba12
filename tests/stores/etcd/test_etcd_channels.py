"""When an etcd client gives up on a connection, and when it closes it."""

from __future__ import annotations

from contextlib import nullcontext

from leasehold.backends.etcd.channels import GRACE, LEAST_WAIT, YOUNG, Channels


class Clock:
    def __init__(self) -> None:
        self.now = 100.0


def made() -> tuple[Clock, Channels]:
    clock = Clock()
    return clock, Channels(object, lambda: clock.now, nullcontext())


def test_one_channel_is_used_by_all() -> None:
    _, channels = made()
    assert channels.current() is channels.current()


def test_channel_that_says_nothing_for_a_whole_call_is_given_up_on() -> None:
    clock, channels = made()
    first = channels.current()
    clock.now += 5
    assert channels.unanswered(first, 3) is None
    assert channels.current() is not first


def test_channel_that_has_said_something_meanwhile_is_kept() -> None:
    clock, channels = made()
    first = channels.current()
    clock.now += 3
    channels.answered(first)
    clock.now += 2
    channels.unanswered(first, 3)
    assert channels.current() is first


def test_channel_is_given_up_on_once_for_all_who_waited() -> None:
    clock, channels = made()
    first = channels.current()
    clock.now += 5
    channels.unanswered(first, 3)
    second = channels.current()
    channels.unanswered(first, 3)
    assert channels.current() is second


def test_new_channel_gets_some_time() -> None:
    clock, channels = made()
    first = channels.current()
    clock.now += YOUNG / 2
    channels.unanswered(first, YOUNG / 4)
    assert channels.current() is first


def test_channel_is_not_given_up_on_for_a_caller_that_had_no_time() -> None:
    clock, channels = made()
    first = channels.current()
    clock.now += 5
    channels.unanswered(first, LEAST_WAIT / 2)
    assert channels.current() is first
    channels.unanswered(first, LEAST_WAIT)
    assert channels.current() is not first


def test_channels_of_a_dropped_client_are_all_known() -> None:
    clock, channels = made()
    assert channels.dropped() == []
    first = channels.current()
    clock.now += 5
    channels.unanswered(first, 3)
    second = channels.current()
    assert channels.dropped() == [first.grpc, second.grpc]


def test_old_channel_is_closed_when_its_calls_must_be_over() -> None:
    clock, channels = made()
    first = channels.current()
    clock.now += 5
    assert channels.unanswered(first, 3) is None
    second = channels.current()
    clock.now += GRACE
    assert channels.unanswered(second, 3) is first.grpc
    third = channels.current()
    assert channels.hang_up() == [second.grpc, third.grpc]
    assert channels.hang_up() == []
