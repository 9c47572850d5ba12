"""When an etcd client replaces a channel, and when it closes the old one."""

from __future__ import annotations

from contextlib import nullcontext

from leasehold._backends.etcd.pool import GRACE, LEAST_WAIT, YOUNG, ChannelPool


class Clock:
    def __init__(self) -> None:
        self.now = 100.0


def made() -> tuple[Clock, ChannelPool]:
    clock = Clock()
    return clock, ChannelPool(object, lambda: clock.now, nullcontext())


def test_one_channel_is_used_by_all() -> None:
    _, pool = made()
    assert pool.open() is pool.open()


def test_channel_without_an_answer_for_a_whole_call_is_replaced() -> None:
    clock, pool = made()
    first = pool.open()
    clock.now += 5
    assert pool.timed_out(first, 3) is None
    assert pool.open() is not first


def test_channel_with_an_answer_meanwhile_is_kept() -> None:
    clock, pool = made()
    first = pool.open()
    clock.now += 3
    first.answered_at = clock.now
    clock.now += 2
    pool.timed_out(first, 3)
    assert pool.open() is first


def test_channel_is_replaced_once_for_all_calls_that_timed_out() -> None:
    clock, pool = made()
    first = pool.open()
    clock.now += 5
    pool.timed_out(first, 3)
    second = pool.open()
    pool.timed_out(first, 3)
    assert pool.open() is second


def test_new_channel_gets_some_time() -> None:
    clock, pool = made()
    first = pool.open()
    clock.now += YOUNG / 2
    pool.timed_out(first, YOUNG / 4)
    assert pool.open() is first


def test_channel_is_not_replaced_for_a_call_that_had_no_time() -> None:
    clock, pool = made()
    first = pool.open()
    clock.now += 5
    pool.timed_out(first, LEAST_WAIT / 2)
    assert pool.open() is first
    pool.timed_out(first, LEAST_WAIT)
    assert pool.open() is not first


def test_channels_of_a_dropped_client_are_all_known() -> None:
    clock, pool = made()
    assert pool.dropped() == []
    first = pool.open()
    clock.now += 5
    pool.timed_out(first, 3)
    second = pool.open()
    assert pool.dropped() == [first.grpc, second.grpc]


def test_old_channel_is_closed_when_its_calls_must_be_over() -> None:
    clock, pool = made()
    first = pool.open()
    clock.now += 5
    assert pool.timed_out(first, 3) is None
    second = pool.open()
    clock.now += GRACE
    assert pool.timed_out(second, 3) is first.grpc
    third = pool.open()
    assert pool.take_all() == [second.grpc, third.grpc]
    assert pool.take_all() == []
