"""The figures of a fleet from a given state, and when its reader asks the store again: nothing here needs a store."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import BackendUnavailable, Holder, Holding, LockState, Mode, Pause
from leasehold.fleet import FleetReader, FleetState, Groups, GroupState, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

US, THEM = Holder("h", 1), Holder("h", 2)


def state(
    name: str, *holdings: Holding, waiters: int = 0, mode: Mode = Mode.EXCLUSIVE, paused: bool = False
) -> LockState:
    return LockState(name, mode, 1, holdings, (THEM,) * waiters, Pause("moving", "ana") if paused else None)


def holding(held_for: float, fence: int = 1, **more: Any) -> Holding:
    return Holding(US, fence, held_for, 30.0, **more)


def test_each_figure_of_a_group_is_that_of_its_locks() -> None:
    locks = [
        state("b:1", holding(3.0), waiters=2),
        state("b:2", holding(7.0), paused=True),
        state("b:3", paused=True),
        state("b:4", holding(99.0, broken="stuck"), holding(98.0, cooling=True), waiters=1),
        state("a:1", holding(1.0), holding(2.0), mode=Mode.PERMIT),
        state("plain", holding(5.0), mode=Mode.SHARED),
    ]
    groups = Groups(["a:", "b:", "empty:"])
    found = summary(FleetState(locks, stalled={"b:1": 4.0, "b:4": 1.5}), groups)
    assert list(found) == ["a:", "b:", "empty:", "other"], "in order"
    assert found["a:"] == GroupState(held=2, longest_hold=2.0, modes=Counter(permit=2))
    assert found["b:"] == GroupState(
        held=2, waiters=3, paused=2, longest_hold=7.0, stalled=4.0, modes=Counter(exclusive=2)
    )
    assert found["empty:"] == GroupState()
    assert found["other"] == GroupState(held=1, longest_hold=5.0, modes=Counter(shared=1))


@pytest.mark.parametrize(
    ("name", "group"),
    [("a:b/c", "a"), ("a/b:c", "a"), ("a", "ungrouped"), (":a", "ungrouped"), ("/a:b", "/a"), (":a/b", ":a")],
)
def test_a_group_is_what_stands_before_the_first_separator(name: str, group: str) -> None:
    assert Groups().of(name) == group


def test_a_group_that_is_known_is_counted_although_there_are_too_many() -> None:
    groups = Groups(most=1)
    assert [groups.of(name) for name in ("a:1", "b:1", "a:2")] == ["a", "other", "a"]
    assert groups.known == {"a"}


def test_of_several_prefixes_the_longest_counts_in_whatever_order_they_are_given() -> None:
    for given in (["a:", "a:b:"], ["a:b:", "a:"]):
        groups = Groups(given)
        assert [groups.of(name) for name in ("a:1", "a:b:1", "c")] == ["a:", "a:b:", "other"]
        assert groups.known == {"a:", "a:b:"}


class Locks:
    """A client whose store answers by a script; the last answer is given again."""

    def __init__(self, *answers: Sequence[LockState] | Exception) -> None:
        self.answers = list(answers)
        self.prefixes: list[str] = []
        self.clock: Callable[[], object] = lambda: None

    def locks(self, prefix: str = "") -> Sequence[LockState]:
        self.prefixes.append(prefix)
        self.clock()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_000.0]
    monkeypatch.setattr("leasehold.fleet.time.monotonic", lambda: now[0])
    return now


def asked(client: Any, **options: Any) -> FleetReader:
    reader = FleetReader(client, **options)
    reader.patience = 60.0
    return reader


def test_what_was_read_is_good_for_its_time_and_no_longer(clock: list[float]) -> None:
    client = Locks([])
    reader = asked(client, prefix="shop:")
    counts = []
    for after in (0.0, 4.9, 0.1, 4.9, 0.2):
        clock[0] += after
        assert reader.read().error is None
        counts.append(len(client.prefixes))
    assert counts == [1, 1, 2, 2, 3]
    assert set(client.prefixes) == {"shop:"}
    assert (reader.began, reader.failures) == (1_010.1, 0)


def test_a_state_says_when_it_was_read_and_how_long_that_took(clock: list[float]) -> None:
    client = Locks([state("x")], BackendUnavailable("away"))

    def passes() -> None:
        clock[0] += 0.25

    client.clock = passes
    reader = asked(client, max_age=0.0)
    assert reader.read() == FleetState([state("x")], None, 1_000.25, 0.25)
    assert reader.read() == FleetState(error="away", read_at=1_000.5, took=0.25)
    assert reader.began == 1_000.25


def test_a_reader_waits_no_longer_than_it_is_told_and_says_since_when_it_knows_nothing(clock: list[float]) -> None:
    go_on = threading.Event()
    client = Locks([])
    client.clock = lambda: go_on.wait(60)
    reader = FleetReader(client, patience=0.0)  # type: ignore[arg-type]
    assert reader.read() == FleetState(error="the store did not answer within 0 s", read_at=1_000.0)
    assert FleetReader(client).patience == 5.0  # type: ignore[arg-type]
    go_on.set()


def test_only_what_this_library_says_is_shown_of_an_error() -> None:
    client = Locks(BackendUnavailable("away"), ValueError("password=secret"), [])
    reader = asked(client, max_age=0.0)
    assert reader.read().error == "away"
    assert reader.read().error == "it failed with ValueError"
    assert reader.failures == 2
    assert reader.read().error is None


def test_a_thread_that_cannot_be_started_is_a_failure_of_one_reading(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every later reader waited its whole patience for it."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    reader = asked(Locks([state("x")]), patience=5.0)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert reader.read() == FleetState(error="the store was not asked: can't start new thread", read_at=1_000.0)
    assert reader.failures == 1
    clock[0] += 5.0
    done = reader.begin()
    assert done is not None
    assert done.wait(30)
    assert reader.read().locks == [state("x")]


def test_every_answer_is_told_of_before_anybody_sees_it_and_a_failure_there_is_one_of_the_reading() -> None:
    heard: list[tuple[FleetState, bool]] = []
    reader: FleetReader = asked(
        Locks([state("x")], BackendUnavailable("away"), []),
        max_age=0.0,
        on_read=lambda told: heard.append((told, reader.latest is told)),
    )
    first = reader.read()
    assert heard == [(first, False)]
    reader.read()
    assert len(heard) == 1, "there was no answer"

    def fails(_: FleetState) -> None:
        raise RuntimeError

    assert asked(Locks([]), on_read=fails).read().error == "it failed with RuntimeError"


def test_a_queue_stands_still_while_its_holders_are_the_same(clock: list[float]) -> None:
    both, one, other = (holding(1, 7), holding(1, 9)), (holding(2, 7),), (holding(0, 8),)
    client = Locks(
        [state("x", *both, waiters=1), state("free", holding(1))],
        [state("x", *reversed(both), waiters=3)],  # in whatever order they are shown, and whoever waits
        [state("x", *one, waiters=1)],
        [state("x", *one)],
        [state("x", *one, waiters=1), state("y", *other, waiters=1)],
        [state("y", *other, waiters=1)],
    )
    reader = asked(client, max_age=0.0)
    stalled = []
    for _ in range(6):
        stalled.append(reader.read().stalled)
        clock[0] += 10.0
    assert stalled == [{"x": 0.0}, {"x": 10.0}, {"x": 0.0}, {}, {"x": 0.0, "y": 0.0}, {"y": 10.0}]


def test_while_the_store_is_silent_nobody_is_shown_what_it_said_before(clock: list[float]) -> None:
    go_on, asked_twice = threading.Event(), threading.Event()
    client = Locks([state("x")])
    reader: FleetReader = asked(client, max_age=5.0)
    first = reader.read()
    reader.patience = 0.0
    clock[0] += 5.0

    def waits() -> None:
        asked_twice.set()
        go_on.wait(60)

    client.clock = waits
    assert reader.read() == FleetState(error="the store did not answer within 0 s", read_at=1_005.0)
    assert asked_twice.wait(60)
    assert reader.latest is first
    done = reader.begin()
    assert done is not None
    assert reader.begin() is done, "one reader asks for all"
    go_on.set()
    assert done.wait(60)
    assert reader.begin() is None
    assert (len(client.prefixes), reader.failures) == (2, 0)
    assert reader.read() == FleetState([state("x")], None, 1_005.0, 0.0)


@pytest.mark.parametrize(("changed_after", "readings"), [(-0.1, 1), (0.0, 1), (0.1, 2), (0.25, 2), (0.3, 2)])
def test_what_was_read_while_something_was_changed_is_not_good_any_more(
    clock: list[float], changed_after: float, readings: int
) -> None:
    """A reading of a quarter of a second may have seen the lock before the change or after it."""
    client = Locks([])

    def passes() -> None:
        clock[0] += 0.25

    client.clock = passes
    reader = asked(client)
    began = clock[0]
    reader.read()
    clock[0] = began + changed_after
    reader.outdate()
    clock[0] = began + 1.0
    reader.read()
    assert len(client.prefixes) == readings
