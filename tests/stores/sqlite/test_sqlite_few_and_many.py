"""A name with few claims is read at once, one with many is asked for what is needed: both give the same answers.

Each story is told twice. The second time no name counts as one with few claims.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.sqlite import rows
from leasehold._runtimes.threads import run
from leasehold.spi import Place
from leasehold.values import Claim, Grant, Holder, LockState, Mode, Refusal
from tests.stores.sqlite.sqlite_support import FakeHost, Verbs
from tests.stores.support import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEY = "ns:name"


def claim(
    number: int, mode: Mode = Mode.EXCLUSIVE, ttl: float = 30.0, min_hold: float = 0.0, capacity: int = 1
) -> Claim:
    return Claim(KEY, f"owner-{number}", ttl, mode, capacity, min_hold, Holder("host", number, f"label {number}"))


def permit(number: int, ttl: float = 30.0, min_hold: float = 0.0) -> Claim:
    return claim(number, Mode.PERMIT, ttl, min_hold, capacity=3)


class Teller:
    """Two clients of one file, and all that they were answered."""

    def __init__(self, path: Path) -> None:
        self.host = FakeHost()
        self.one, self.other = Verbs(path, self.host), Verbs(path, self.host)
        self.told: list[object] = []

    def note(self, answer: Any) -> Any:
        match answer:
            case Grant():
                what: object = ("granted", answer.fence, answer.spare, answer.abandoned, answer.ttl)
            case Place():
                what = ("placed", answer.ahead, answer.holder, answer.recheck, answer.retry_after, answer.paused)
            case Refusal():
                what = ("refused", answer.holder, answer.retry_after, answer.queue, answer.paused)
            case LockState():
                what = (answer.mode, answer.capacity, answer.holdings, answer.waiting, answer.paused)
            case _:
                what = answer
        self.told.append(what)
        return answer

    def close(self) -> None:
        self.one.close()
        self.other.close()


def permits_run_out(tell: Teller) -> None:
    held = [tell.note(tell.one.try_acquire(permit(number, ttl=10.0 + number))) for number in range(3)]
    tell.note(tell.other.try_acquire(permit(5)))
    places = [tell.note(tell.other.join(permit(number))) for number in (6, 7, 8)]
    tell.note(tell.one.inspect(KEY))
    tell.host.pass_time(2.0)
    for place in places:
        tell.note(tell.other.turn(place))
    tell.host.pass_time(1.5)
    tell.note(tell.one.renew(*held))
    tell.note(tell.one.release(held[1]))
    for place in places:
        tell.note(tell.other.turn(place))
    tell.host.pass_time(9.0)
    tell.note(tell.one.inspect(KEY))
    tell.note(tell.one.try_acquire(permit(9)))


def what_is_kept_for_its_min_hold(tell: Teller) -> None:
    held = [tell.note(tell.one.try_acquire(permit(number, min_hold=5.0 * number))) for number in (1, 2, 3)]
    tell.note(tell.one.release(held[1]))
    tell.note(tell.one.inspect(KEY))
    tell.note(tell.other.try_acquire(permit(4)))
    place = tell.note(tell.other.join(permit(5)))
    tell.host.pass_time(2.0)
    tell.note(tell.one.release(held[2]))
    tell.note(tell.one.release(held[0]))
    tell.note(tell.other.turn(place))
    tell.host.pass_time(2.5)
    tell.note(tell.other.turn(place))
    tell.host.pass_time(0.5)
    tell.note(tell.other.turn(place))
    tell.note(tell.one.try_acquire(permit(6)))


def readers_and_writers(tell: Teller) -> None:
    readers = [tell.note(tell.one.try_acquire(claim(number, Mode.SHARED, ttl=20.0 + number))) for number in (1, 2)]
    writer = tell.note(tell.other.join(claim(3)))
    behind = [tell.note(tell.one.join(claim(number, Mode.SHARED))) for number in (4, 5)]
    tell.note(tell.one.try_acquire(claim(6, Mode.SHARED)))
    tell.note(tell.one.release(readers[0]))
    tell.note(tell.other.turn(writer))
    tell.note(tell.one.release(readers[1]))
    held = tell.note(tell.other.turn(writer))
    tell.note(tell.one.turn(behind[0]))
    tell.note(tell.other.break_(KEY, held.fence, now=False))
    tell.note(tell.one.inspect(KEY))
    tell.note(tell.other.renew(held))
    tell.note(tell.other.release(held))
    for place in behind:
        eventually(place.signal.is_set, "it is not woken")
        tell.note(tell.one.turn(place))
    tell.note(tell.one.inspect(KEY))


def one_that_vanishes_and_one_that_goes(tell: Teller) -> None:
    tell.note(tell.one.try_acquire(claim(1, ttl=3.0)))
    places = [tell.note(tell.other.join(claim(number))) for number in (2, 3, 4)]
    tell.other.withdraw(places[1].claim)
    tell.note(tell.one.inspect(KEY))
    tell.host.pass_time(2.0)
    for place in (places[0], places[2]):
        tell.note(tell.other.turn(place))
    tell.host.pass_time(1.0)
    tell.note(tell.one.try_acquire(claim(5)))
    held = tell.note(tell.other.turn(places[0]))
    tell.note(tell.other.turn(places[2]))
    tell.note(tell.other.join(places[1].claim))
    run(tell.one.backend.pause(KEY, Holder("ops", 9, "ana", "moving"), 60.0))
    tell.note(tell.one.inspect(KEY))
    tell.note(tell.other.release(held))
    tell.note(tell.other.turn(places[2]))
    tell.note(run(tell.one.backend.resume(KEY)))
    tell.note(tell.other.turn(places[2]))


@pytest.mark.parametrize(
    "story", [permits_run_out, what_is_kept_for_its_min_hold, readers_and_writers, one_that_vanishes_and_one_that_goes]
)
def test_a_name_with_many_claims_gives_the_answers_of_one_with_few(
    story: Callable[[Teller], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    for few in (rows.FEW, 0):
        monkeypatch.setattr(rows, "FEW", few)
        tell = Teller(tmp_path / f"{few}.db")
        story(tell)
        tell.close()
        told.append(tell.told)
    assert told[0] == told[1]
