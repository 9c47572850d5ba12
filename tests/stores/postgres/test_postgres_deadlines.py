"""Giving up on what cannot be interrupted: its result is used once, or undone, and its error is raised or dropped."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.postgres import deadlines
from leasehold._backends.postgres.deadlines import in_time, in_time_async
from tests.waiting import LIMIT, eventually

if TYPE_CHECKING:
    from collections.abc import Callable


class Making:
    """Something that is made when the test says so."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.may_end = threading.Event()
        self.error = error
        self.undone: list[object] = []
        self.threads: list[threading.Thread] = []

    def make(self) -> str:
        self.threads.append(threading.current_thread())
        assert self.may_end.wait(LIMIT)
        if self.error is not None:
            raise self.error
        return "made"

    def has_begun(self) -> bool:
        return bool(self.threads)

    def undo(self, made: object) -> None:
        self.undone.append(made)

    def ends(self) -> None:
        self.may_end.set()
        for thread in self.threads:
            thread.join(LIMIT)


def test_what_is_made_in_time_is_returned_and_not_undone() -> None:
    making = Making()
    making.may_end.set()
    assert in_time(making.make, making.undo, LIMIT) == "made"
    making.ends()
    assert making.undone == []
    assert making.threads[0] is not threading.current_thread()
    assert making.threads[0].daemon, "a program does not wait for it at its end"


def test_an_error_of_the_making_is_raised() -> None:
    making = Making(ValueError("no"))
    making.may_end.set()
    with pytest.raises(ValueError, match="no"):
        in_time(making.make, making.undo, LIMIT)
    assert making.undone == []


@pytest.mark.parametrize(("seconds", "is_over"), [(0.0, False), (LIMIT, True)])
def test_what_comes_too_late_is_undone(monkeypatch: pytest.MonkeyPatch, seconds: float, is_over: bool) -> None:
    monkeypatch.setattr(deadlines, "CHECK_EVERY", 0.001)
    making = Making()
    with pytest.raises(TimeoutError):
        in_time(making.make, making.undo, seconds, lambda: is_over)
    assert making.undone == []
    eventually(lambda: making.threads)
    making.ends()
    assert making.undone == ["made"]


def test_an_interrupted_wait_undoes_what_comes_later() -> None:
    making = Making()

    def interrupt() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_time(making.make, making.undo, LIMIT, interrupt)
    eventually(lambda: making.threads)
    making.ends()
    assert making.undone == ["made"]


def test_an_undoing_that_fails_and_an_error_that_comes_late_disturb_nobody() -> None:
    for making in (Making(), Making(ValueError("late"))):

        def fail(made: object, making: Making = making) -> None:
            making.undo(made)
            raise OSError("it is gone")

        with pytest.raises(TimeoutError):
            in_time(making.make, fail, 0.0)
        eventually(making.has_begun)
        making.ends()
        assert making.undone == ([] if making.error else ["made"])


# --- on an event loop


class AsyncMaking:
    def __init__(self, error: Exception | None = None, *, stubborn: bool = False) -> None:
        self.may_end = asyncio.Event()
        self.error = error
        self.stubborn = stubborn  # as a driver that finishes what it does before it is cancelled
        self.undone: list[object] = []
        self.started = self.cancelled = 0

    async def make(self) -> str:
        self.started += 1
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            if not self.stubborn:
                raise
        if self.error is not None:
            raise self.error
        return "made"

    async def undo(self, made: object) -> None:
        self.undone.append(made)


def play(story: Callable[[], object]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(story(), LIMIT)  # type: ignore[arg-type] # a coroutine function

    asyncio.run(limited())


def test_a_task_that_is_ready_in_time_gives_its_result_or_its_error() -> None:
    async def story() -> None:
        making = AsyncMaking()
        making.may_end.set()
        assert await in_time_async(making.make, making.undo, LIMIT) == "made"
        assert making.undone == []
        failing = AsyncMaking(ValueError("no"))
        failing.may_end.set()
        with pytest.raises(ValueError, match="no"):
            await in_time_async(failing.make, failing.undo, LIMIT)

    play(story)


@pytest.mark.parametrize(("seconds", "is_over"), [(0.0, False), (LIMIT, True)])
@pytest.mark.parametrize("stubborn", [False, True])
def test_a_task_that_is_too_late_is_cancelled_and_what_it_made_is_undone(
    monkeypatch: pytest.MonkeyPatch, seconds: float, is_over: bool, stubborn: bool
) -> None:
    monkeypatch.setattr(deadlines, "CHECK_EVERY", 0.001)

    async def story() -> None:
        making = AsyncMaking(stubborn=stubborn)
        calls: list[int] = []

        def over() -> bool:
            calls.append(1)
            return is_over and len(calls) > 2

        with pytest.raises(TimeoutError):
            await in_time_async(making.make, making.undo, seconds or 0.01, over)
        while not making.cancelled:
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        assert making.undone == (["made"] if stubborn else [])

    play(story)


def test_a_cancelled_caller_undoes_what_was_just_made() -> None:
    async def story() -> None:
        making = AsyncMaking()
        caller = asyncio.create_task(in_time_async(making.make, making.undo, LIMIT))
        while not making.started:
            await asyncio.sleep(0)
        making.may_end.set()
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])
        assert making.undone == ([] if not caller.cancelled() else ["made"])

    play(story)


@pytest.mark.parametrize("is_ready", [False, True])
def test_a_caller_that_is_dropped_awaits_nothing_and_what_is_made_for_it_is_undone(is_ready: bool) -> None:
    """As a generator that is collected: whoever awaited there would break the collection."""

    async def story() -> None:
        making = AsyncMaking()
        caller: Any = in_time_async(making.make, making.undo, LIMIT)
        caller.send(None)
        while not making.started:
            await asyncio.sleep(0)
        if is_ready:
            making.may_end.set()
        caller.close()
        making.may_end.set()
        for _ in range(10):
            await asyncio.sleep(0)
        assert (making.cancelled, making.undone) == (0, ["made"])

    play(story)


def test_a_late_error_is_not_reported_by_the_loop() -> None:
    async def story() -> None:
        reports: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
        making = AsyncMaking(ValueError("late"), stubborn=True)
        with pytest.raises(TimeoutError):
            await in_time_async(making.make, making.undo, 0.01)
        for _ in range(10):
            await asyncio.sleep(0)
        import gc

        gc.collect()
        await asyncio.sleep(0)
        assert reports == []

    play(story)
