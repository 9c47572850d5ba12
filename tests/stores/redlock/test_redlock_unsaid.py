"""What a node may not have heard."""

from __future__ import annotations

from leasehold.backends.redlock.calls import Call, Calls
from leasehold.backends.redlock.unsaid import MOST_UNSAID, Unsaid
from leasehold.values import Claim, Holder, Mode

CALLS = Calls(30, 5)
CLAIM = Claim("leasehold:x", "f" * 32, 10.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))


def release(number: int, now: float = 0.0) -> Call:
    return CALLS.release(CLAIM, number, now)


def test_a_call_that_got_lost_twice_takes_one_place() -> None:
    unsaid, first = Unsaid(), release(0)
    unsaid.keep(first)
    others = [release(number) for number in range(1, MOST_UNSAID)]
    for call in [*others, *others]:
        unsaid.keep(call)
    assert unsaid.take(1.0) == [first, *others]
    assert len(unsaid) == 0


def test_the_oldest_is_left_out_when_there_are_too_many() -> None:
    unsaid = Unsaid()
    calls = [release(number) for number in range(MOST_UNSAID + 1)]
    for call in calls:
        unsaid.keep(call)
    assert unsaid.take(1.0) == calls[1:]


def test_what_its_ttl_has_ended_and_what_need_not_be_said_is_not_said() -> None:
    unsaid, late = Unsaid(), release(2, now=5.0)
    for call in (release(1), late, CALLS.vote(CLAIM, 3)):
        unsaid.keep(call)
    assert unsaid.take(10.0) == [late]
