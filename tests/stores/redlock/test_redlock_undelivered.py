"""Calls that a node may have missed."""

from __future__ import annotations

from leasehold._backends.redlock.calls import Call, Calls
from leasehold._backends.redlock.undelivered import MOST_UNDELIVERED, Undelivered
from leasehold.values import Claim, Holder, Mode

CALLS = Calls(30, 5)
CLAIM = Claim("leasehold:x", "f" * 32, 10.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))


def release(number: int, now: float = 0.0) -> Call:
    return CALLS.release(CLAIM, number, now)


def test_a_call_that_got_lost_twice_takes_one_place() -> None:
    undelivered, first = Undelivered(), release(0)
    undelivered.keep(first)
    others = [release(number) for number in range(1, MOST_UNDELIVERED)]
    for call in [*others, *others]:
        undelivered.keep(call)
    assert undelivered.take(1.0) == [first, *others]
    assert len(undelivered) == 0


def test_the_oldest_is_left_out_when_there_are_too_many() -> None:
    undelivered = Undelivered()
    calls = [release(number) for number in range(MOST_UNDELIVERED + 1)]
    for call in calls:
        undelivered.keep(call)
    assert undelivered.take(1.0) == calls[1:]


def test_calls_whose_ttl_is_over_or_that_do_not_matter_are_not_sent_again() -> None:
    undelivered, late = Undelivered(), release(2, now=5.0)
    for call in (release(1), late, CALLS.vote(CLAIM, 3)):
        undelivered.keep(call)
    assert len(undelivered) == 2, "a call without an end would take the place of one that matters"
    assert undelivered.take(10.0) == [late]
