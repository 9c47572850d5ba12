"""The memory store by itself: what it forgets, what a forked child begins with, and which store a URL means."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from leasehold._backends.memory import MemoryStore, open_url
from leasehold._backends.memory.store import SWEEP_AT_LEAST
from leasehold._runtimes.threads import ThreadRuntime, ThreadSignal, run
from leasehold.findings import Level
from leasehold.spi import Place
from leasehold.store_url import StoreURL
from leasehold.values import Capability, Claim, Grant, Holder, Loss, LossReason, Mode, Record, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

DAY = 86_400.0


class Clock:
    def __init__(self) -> None:
        self.instant = 1_000.0

    def __call__(self) -> float:
        return self.instant


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> MemoryStore:
    return MemoryStore(clock, wall=lambda: clock.instant + 5e8)


def claim(number: int = 1, key: str = "ns:x", ttl: float = 10.0, mode: Mode = Mode.EXCLUSIVE, spare: int = 0) -> Claim:
    return Claim(key, f"owner-{number}", ttl, mode, 1, 0.0, Holder("host", number), spare)


def granted(answer: object) -> Grant:
    assert isinstance(answer, Grant), answer
    return answer


def placed(store: MemoryStore, number: int, key: str = "ns:x") -> Place:
    place = store.join(claim(number, key), ThreadSignal())
    assert isinstance(place, Place), place
    return place


# --- fences


def test_fences_rise_over_all_names_and_leave_room_for_those_that_are_spare(store: MemoryStore) -> None:
    first = granted(store.try_acquire(claim(1, "ns:a", spare=5)))
    second = granted(store.try_acquire(claim(2, "ns:b")))
    assert (first.fence, first.spare, second.fence) == (1, 5, 7)
    assert store.raise_fence("ns:a", 40) == 40
    assert store.raise_fence("ns:b", 20) == 40
    assert granted(store.try_acquire(claim(3, "ns:c"))).fence == 41


def test_a_waiter_gets_spare_fences_too(store: MemoryStore) -> None:
    held = granted(store.try_acquire(claim(1)))
    place = placed(store, 2)
    store.release(held)
    grant = granted(store.turn(place))
    assert grant.spare > 0
    assert granted(store.try_acquire(claim(3, "ns:y"))).fence == grant.fence + grant.spare + 1


# --- what is forgotten


def test_nothing_is_kept_of_names_that_are_not_in_use(store: MemoryStore) -> None:
    grant = granted(store.try_acquire(claim(1)))
    assert store.size == 1
    assert store.release(grant) is True
    assert store.release(grant) is False
    assert store.renew([grant]) == [Loss(LossReason.TAKEN, "the store does not know this grant any more")]
    store.withdraw(claim(1), doubt=False)
    assert store.inspect("ns:x") is None
    assert store.break_("ns:x", 7, "stuck", now=True) is False
    assert store.resume("ns:x") is False
    assert store.read("ns:x").record is None
    assert store.size == 0


def test_a_withdrawn_claim_is_remembered_for_its_ttl(store: MemoryStore, clock: Clock) -> None:
    store.withdraw(claim(1))
    assert isinstance(store.try_acquire(claim(1)), Refusal)
    clock.instant += 10
    assert store.size == 0


def test_a_name_whose_holder_vanished_is_remembered_for_a_day_after_that_was_noticed(
    store: MemoryStore, clock: Clock
) -> None:
    granted(store.try_acquire(claim(1)))
    clock.instant += 10
    assert store.size == 1
    clock.instant += DAY - 1
    assert store.size == 1
    clock.instant += 1
    assert store.size == 0


VISITS: list[Callable[[MemoryStore], object]] = [
    lambda store: store.try_acquire(claim(9, "ns:held")),
    lambda store: store.read("ns:other"),
    lambda store: store.write(Record("ns:r", b"", 1, 0.001)),
]


@pytest.mark.parametrize("visit", VISITS, ids=["a refusal", "a read", "a write"])
def test_use_alone_forgets_names_and_records_that_are_over(
    store: MemoryStore, clock: Clock, visit: Callable[[MemoryStore], object]
) -> None:
    granted(store.try_acquire(claim(1, "ns:held", ttl=9 * DAY)))
    for number in range(20):
        store.withdraw(claim(number, f"ns:{number}"))
        store.write(Record(f"ns:r{number}", b"", 1, 10.0))
    clock.instant += 2 * DAY
    for _ in range(20 + 20 + 1 + 2 * SWEEP_AT_LEAST):
        visit(store)
    assert list(store._names) == ["ns:held"]
    assert len(store._records) <= 1


def test_names_that_are_only_ever_granted_anew_are_forgotten_too(store: MemoryStore, clock: Clock) -> None:
    for number in range(5 * SWEEP_AT_LEAST):
        store.withdraw(claim(number, f"ns:w{number}", ttl=0.5))
        store.release(granted(store.try_acquire(claim(number, f"ns:{number}"))))
        clock.instant += 1
    assert len(store._names) <= 2 * SWEEP_AT_LEAST


# --- waiters


def test_a_place_says_when_the_grant_in_its_way_ends(store: MemoryStore, clock: Clock) -> None:
    granted(store.join(claim(1, ttl=10.0), ThreadSignal()))
    clock.instant += 4.0
    assert placed(store, 2).retry_after == pytest.approx(6.0)
    clock.instant += 1.0
    again = store.turn(placed(store, 2))
    assert isinstance(again, Place)
    assert again.retry_after == pytest.approx(5.0), "as it is now"


def test_whoever_finds_a_holder_gone_wakes_the_next(store: MemoryStore, clock: Clock) -> None:
    granted(store.try_acquire(claim(1, ttl=1.0)))
    place = placed(store, 2)
    clock.instant += 1
    assert not place.signal.is_set()
    assert store.inspect("ns:x") is not None
    assert place.signal.is_set()
    place.signal.clear()
    store.inspect("ns:x")
    assert not place.signal.is_set(), "once is enough"


@pytest.mark.parametrize("how", ["release", "withdraw", "break", "resume"])
def test_every_end_of_a_grant_wakes_the_next(store: MemoryStore, how: str) -> None:
    grant = granted(store.try_acquire(claim(1)))
    if how == "resume":
        store.pause("ns:x", Holder("h", 1, "ana"), 60.0)
        store.release(grant)
    place = placed(store, 2)
    if how == "release":
        store.release(grant)
    elif how == "withdraw":
        store.withdraw(grant.claim)
    elif how == "break":
        assert store.break_("ns:x", grant.fence, "stuck", now=True)
    else:
        assert store.resume("ns:x")
    assert place.signal.is_set()
    granted(store.turn(place))


def test_all_whose_turn_it_may_be_are_woken_and_no_other(store: MemoryStore) -> None:
    held = granted(store.try_acquire(claim(1)))
    signals = [ThreadSignal() for _ in range(4)]
    for number, mode in enumerate((Mode.SHARED, Mode.SHARED, Mode.EXCLUSIVE, Mode.SHARED)):
        assert isinstance(store.join(claim(number + 2, mode=mode), signals[number]), Place)
    store.release(held)
    assert [signal.is_set() for signal in signals] == [True, True, False, False]


def test_a_waiter_learns_of_a_pause(store: MemoryStore) -> None:
    store.pause("ns:x", Holder("h", 1, "ana", "moving"), 60.0)
    place = placed(store, 2)
    assert place.paused is not None
    assert place.paused.reason == "moving"


def test_states_are_listed_in_order_and_by_their_prefix(store: MemoryStore, clock: Clock) -> None:
    for number, key in enumerate(["ns:b", "ns:a", "other:a", "ns:c"]):
        granted(store.try_acquire(claim(number, key, ttl=1.0 if key == "ns:c" else 10.0)))
    clock.instant += 1
    assert [state.name for state in store.list("ns:")] == ["ns:a", "ns:b"]


def test_a_record_has_the_time_of_day(store: MemoryStore, clock: Clock) -> None:
    assert store.write(Record("ns:r", b"v", 3, 10.0)) is True
    clock.instant += 4
    reading = store.read("ns:r")
    assert reading.time == clock.instant + 5e8
    assert reading.record is not None
    assert (reading.record.ttl, reading.fence) == (6.0, 3)
    assert store.write(Record("ns:r", b"late", 2, 10.0)) is False


# --- processes


def test_a_forked_child_begins_empty_and_never_gives_a_fence_of_its_parent(store: MemoryStore) -> None:
    granted(store.try_acquire(claim(1)))
    store.write(Record("ns:r", b"v", 3, 10.0))
    reading, writing = os.pipe()
    taken, release = threading.Event(), threading.Event()

    def keep() -> None:
        with store._mutex:
            taken.set()
            release.wait(60)

    keeping = threading.Thread(target=keep)
    keeping.start()
    assert taken.wait(60)
    pid = os.fork()
    if pid == 0:  # pragma: no cover - in the child
        try:
            answer = store.try_acquire(claim(2))
            fence = answer.fence if isinstance(answer, Grant) else None
            os.write(writing, f"{fence} {store.read('ns:r').record}".encode())
        finally:
            os._exit(0)
    release.set()
    keeping.join()
    os.close(writing)
    with os.fdopen(reading) as said:
        assert said.read() == "2 None"
    os.waitpid(pid, 0)
    assert isinstance(store.try_acquire(claim(3)), Refusal), "the parent's is as it was"


# --- URLs


def test_a_name_in_the_url_is_one_store_for_the_whole_process() -> None:
    one, same, other = (open_url(StoreURL.parse(f"memory://{name}")) for name in ("unit-a", "unit-a", "unit-b"))
    assert one is same
    assert one is not other
    assert isinstance(one, MemoryStore)
    assert one.label == "memory://unit-a"
    first, second = (open_url(StoreURL.parse("memory://")) for _ in range(2))
    assert first is not second
    assert isinstance(first, MemoryStore)
    assert first.label == "memory://"


def test_a_backend_says_what_it_is_and_what_that_means(store: MemoryStore) -> None:
    backend = store.open_backend(ThreadRuntime())
    assert backend.label == "memory://"
    assert backend.capabilities == frozenset(Capability) - {Capability.SESSION}
    assert backend.is_private is True  # type: ignore[attr-defined]
    assert backend.exists() is True  # type: ignore[attr-defined]
    (finding,) = run(backend.examine())  # type: ignore[attr-defined]
    assert (finding.check, finding.level) == ("scope", Level.PROBLEM)
    assert "sqlite:////path" in finding.advice
