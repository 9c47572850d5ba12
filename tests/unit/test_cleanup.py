"""The clean-up in the background, by itself: what it repeats, until when, and how it ends."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import BackendRejected, BackendUnavailable, ClientClosed, OutcomeUnknown
from leasehold._core.backoff import GRACE
from leasehold._core.cleanup import Cleanup
from leasehold._runtimes.threads import run
from leasehold.testing.clock import ManualClock
from leasehold.testing.runtimes import ManualThreadRuntime
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

NOW = 1_000.0


class Chores:
    """A clean-up on a clock that is turned by hand, and actions that fail as they are told."""

    def __init__(self) -> None:
        self.clock = ManualClock(autojump=None)
        self.runtime = ManualThreadRuntime(self.clock)
        self.cleanup = Cleanup(self.runtime)
        self.tried: list[tuple[str, float]] = []
        self.failing: dict[str, Exception] = {}

    def add(self, name: str, ends: float = NOW + 60) -> None:
        self.cleanup.add(name, self.perform(name), ends)

    def perform(self, name: str) -> Callable[[float], Coroutine[Any, Any, None]]:
        async def perform(until: float) -> None:
            self.tried.append((name, until))
            if name in self.failing:
                raise self.failing[name]

        return perform

    def rests(self) -> bool:
        """Everything is done, or the next try is planned."""
        return self.cleanup.is_quiet()


@pytest.fixture
def chores() -> Chores:
    return Chores()


def test_an_action_is_tried_at_once_for_the_grace_and_once_is_enough(chores: Chores) -> None:
    chores.add("a")
    eventually(chores.rests)
    assert chores.tried == [("a", NOW + GRACE)]
    chores.clock.advance(30)
    assert len(chores.tried) == 1


def test_a_try_does_not_outlast_the_ttl_that_does_the_same(chores: Chores) -> None:
    chores.add("a", NOW + 0.4)
    eventually(chores.rests)
    assert chores.tried == [("a", NOW + 0.4)]


@pytest.mark.parametrize("late", [0.0, 5.0])
def test_what_its_ttl_has_done_is_not_tried(chores: Chores, late: float) -> None:
    chores.clock.advance(late)
    chores.add("a", NOW)
    eventually(lambda: chores.cleanup._worker is None)
    assert chores.tried == []


@pytest.mark.parametrize("error", [BackendUnavailable("away"), OutcomeUnknown("no answer")], ids=["away", "silent"])
def test_a_store_that_does_not_answer_is_tried_again_after_growing_pauses(chores: Chores, error: Exception) -> None:
    chores.failing["a"] = error
    chores.add("a")
    for tries, (least, most) in enumerate(((0.01, 0.02), (0.05, 0.1), (0.25, 0.5), (0.5, 1.0), (0.5, 1.0)), 1):
        eventually(lambda tries=tries: len(chores.tried) == tries and chores.rests())  # type: ignore[misc]
        due = chores.cleanup._due - chores.clock.now()
        assert least <= due <= most
        chores.clock.advance(due)
    del chores.failing["a"]
    chores.clock.advance(1.1)
    eventually(lambda: chores.cleanup._worker is None)


def test_after_a_success_the_pauses_begin_anew(chores: Chores) -> None:
    chores.failing["a"] = BackendUnavailable("away")
    chores.add("a")
    for tries in (1, 2, 3):
        eventually(lambda tries=tries: len(chores.tried) == tries and chores.rests())  # type: ignore[misc]
        chores.clock.advance(chores.cleanup._due - chores.clock.now())
    eventually(lambda: len(chores.tried) == 4 and chores.rests())
    chores.add("b")
    chores.clock.advance(1.0)
    eventually(lambda: len(chores.tried) == 5 and chores.rests())
    chores.clock.advance(1.0)
    eventually(lambda: [name for name, _ in chores.tried[5:]] == ["b", "a"] and chores.rests())
    assert chores.cleanup._due - chores.clock.now() <= 0.02
    del chores.failing["a"]
    chores.clock.advance(1)
    eventually(lambda: chores.cleanup._worker is None)


@pytest.mark.parametrize("error", [BackendRejected("no rights"), ValueError("a defect")], ids=["rejected", "defect"])
def test_what_fails_for_good_is_not_repeated(chores: Chores, error: Exception) -> None:
    chores.failing["a"] = error
    chores.add("a")
    eventually(chores.rests)
    chores.clock.advance(5)
    chores.add("b")
    eventually(lambda: [name for name, _ in chores.tried] == ["a", "b"])


def test_when_the_connections_are_closed_nothing_is_tried_any_more(chores: Chores) -> None:
    chores.failing["a"] = BackendUnavailable("away")
    chores.add("a")
    eventually(lambda: len(chores.tried) == 1 and chores.rests())
    chores.add("b")
    chores.failing["a"] = ClientClosed()
    chores.failing["b"] = ClientClosed()
    chores.clock.advance(1)
    eventually(lambda: chores.cleanup._worker is None)
    assert len(chores.tried) == 2


def test_closing_does_not_wait_for_the_end_of_a_pause(chores: Chores) -> None:
    chores.failing["a"] = BackendUnavailable("away")
    chores.add("a")
    for tries in (1, 2, 3):
        eventually(lambda tries=tries: len(chores.tried) == tries and chores.rests())  # type: ignore[misc]
        chores.clock.advance(chores.cleanup._due - chores.clock.now())
    eventually(lambda: len(chores.tried) == 4 and chores.rests())
    del chores.failing["a"]
    until = chores.clock.now() + 60  # where the clock stands still, nothing else ends the pause
    closing = threading.Thread(target=lambda: run(chores.cleanup.close(until)), daemon=True)
    closing.start()
    closing.join(10)
    assert len(chores.tried) == 5
    assert not closing.is_alive()


def test_closing_waits_until_its_deadline_and_forgets_what_is_left(chores: Chores) -> None:
    chores.failing["a"] = BackendUnavailable("away")
    chores.add("a")
    eventually(lambda: len(chores.tried) == 1 and chores.rests())
    closing = threading.Thread(target=lambda: run(chores.cleanup.close(NOW + 0.5)))
    closing.start()
    for _ in range(40):
        chores.clock.advance(0.05)
        threading.Event().wait(0.002)
    closing.join(10)
    assert not closing.is_alive()
    assert len(chores.tried) > 2, "it is tried while the client closes"
    eventually(lambda: chores.cleanup._worker is None)


def test_the_next_action_after_a_rest_is_tried_at_once(chores: Chores) -> None:
    for number in (1, 2):
        chores.add("a", chores.clock.now() + 60)
        eventually(lambda number=number: len(chores.tried) == number and chores.cleanup._worker is None)  # type: ignore[misc]
        chores.clock.advance(10)


def test_a_worker_whose_loop_is_shut_down_is_replaced(chores: Chores) -> None:
    class Shut(BaseException):
        pass

    async def perform(until: float) -> None:
        raise Shut

    chores.cleanup._worker = object()  # type: ignore[assignment] # one that is at work
    chores.cleanup.add("a", perform, NOW + 60)
    with contextlib.suppress(Shut):
        run(chores.cleanup._work())
    assert chores.cleanup._worker is None


def test_what_is_not_done_when_the_client_is_closed_is_tried_no_more(chores: Chores) -> None:
    chores.failing["a"] = BackendUnavailable("away")
    chores.add("a")
    chores.add("b")
    eventually(lambda: chores.rests() or "b" in [name for name, _ in chores.tried])
    run(chores.cleanup.close(chores.clock.now()))
    assert not chores.cleanup._actions, "the worker finds nothing to try after its pause"
