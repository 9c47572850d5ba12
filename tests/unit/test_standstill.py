"""When the clock of a ManualStore may jump, decision by decision; real threads and loops are in test_autojump."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._runtimes.threads import run
from leasehold.testing import ManualClock, standstill
from leasehold.testing.runtimes import ManualAsyncioRuntime, ManualThreadRuntime, _Worker
from leasehold.testing.standstill import MOST_BUSY, WAITS, Wait, _OtherThreads, _Standstill, _Watchman
from tests.unit.cli_support import noted

if TYPE_CHECKING:
    from collections.abc import Iterator


class Flag:
    """A signal."""

    def __init__(self) -> None:
        self.is_up = False
        self.woken = 0

    def is_set(self) -> bool:
        return self.is_up

    def wake(self) -> None:
        self.woken += 1


@pytest.fixture(autouse=True)
def no_waits() -> Iterator[None]:
    """The waits of other tests' workers do not count here."""
    before = set(WAITS)
    WAITS.clear()
    yield
    WAITS.clear()
    WAITS.update(before)


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The real time, as the test says."""
    real = SimpleNamespace(now=50.0)
    monkeypatch.setattr(standstill, "time", SimpleNamespace(monotonic=lambda: real.now))
    return real


# --- a wait


def test_a_wait_is_idle_until_its_signal_or_its_deadline() -> None:
    clock, flag = ManualClock(autojump=None), Flag()
    wait = Wait(clock, flag, 1010.0, is_a_call=True)
    assert wait.is_idle()
    assert wait.now() == -math.inf, "no real timer is set"
    clock.advance(10)
    assert not wait.is_idle()
    assert wait.now() == 1010.0
    for_ever = Wait(clock, flag, None, is_a_call=True)
    assert (for_ever.deadline, for_ever.is_idle(), for_ever.now()) == (math.inf, True, -math.inf)
    flag.is_up = True
    assert not for_ever.is_idle()
    with clock.running():
        assert for_ever.now() >= 1010.0, "a clock that runs needs real timers"


def test_a_wait_is_known_while_it_lasts_and_only_calls_that_may_jump_are_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[int] = []
    monkeypatch.setattr(standstill, "_WATCHMAN", SimpleNamespace(start=lambda: started.append(1)))
    clock, never = ManualClock(), ManualClock(autojump=None)
    for each, is_a_call, starts in ((clock, True, 1), (clock, False, 1), (never, True, 1)):
        with pytest.raises(KeyboardInterrupt), Wait(each, Flag(), None, is_a_call=is_a_call) as wait:
            assert wait in WAITS
            assert len(started) == starts
            raise KeyboardInterrupt
        assert not WAITS


def test_a_clock_that_moves_wakes_its_own_waits() -> None:
    clock, other = ManualClock(autojump=None), ManualClock(autojump=None)
    ours, theirs = Flag(), Flag()
    with Wait(clock, ours, None, is_a_call=False), Wait(other, theirs, None, is_a_call=False):
        clock.advance(1)
        clock.jump_to(2000.0)
        with clock.running():
            pass
    assert (ours.woken, theirs.woken) == (3, 0)


# --- the decision to jump


def test_a_standstill_has_to_last_before_the_first_jump(real: SimpleNamespace) -> None:
    clock, flag = ManualClock(autojump=0.05), Flag()
    decision = _Standstill()
    with Wait(clock, flag, 1030.0, is_a_call=False), Wait(clock, Flag(), 1020.0, is_a_call=False):
        real.now += 0.04
        decision.perhaps_jump(clock, {flag})
        assert clock.now() == 1000.0
        real.now += 0.02
        decision.perhaps_jump(clock, {flag})
        assert clock.now() == 1020.0, "workers get every instant that they wait for"


def test_jumps_follow_each_other_at_once_while_nothing_but_the_jump_has_moved(real: SimpleNamespace) -> None:
    clock, flag, another = ManualClock(autojump=0.05), Flag(), Flag()
    decision = _Standstill()
    with Wait(clock, flag, 5000.0, is_a_call=False):
        real.now += 1
        with Wait(clock, Flag(), 1010.0, is_a_call=False):
            decision.perhaps_jump(clock, {flag})
        assert clock.now() == 1010.0
        for _ in range(MOST_BUSY):
            decision.is_over(str)
        with Wait(clock, Flag(), 1020.0, is_a_call=False):
            decision.perhaps_jump(clock, {another})
            assert clock.now() == 1010.0, "another call waits: it has to last again"
            decision.perhaps_jump(clock, {flag})
        assert clock.now() == 1020.0
        for _ in range(MOST_BUSY):
            decision.is_over(str)
        with Wait(clock, Flag(), 1030.0, is_a_call=False):
            decision.perhaps_jump(clock, {flag})
        assert clock.now() == 1030.0, "each jump may be followed by some looks"
        for _ in range(MOST_BUSY + 1):
            decision.is_over(str)
        decision.perhaps_jump(clock, {flag})
        assert clock.now() == 1030.0, "it was not only the jump"
        real.now += 0.06
        decision.perhaps_jump(clock, {flag})
        assert clock.now() == 5000.0


def test_work_makes_the_standstill_begin_anew(real: SimpleNamespace) -> None:
    clock, flag = ManualClock(autojump=0.05), Flag()
    decision = _Standstill()
    with Wait(clock, flag, 1030.0, is_a_call=False):
        real.now += 1
        decision.is_over(str)
        real.now += 0.04
        decision.perhaps_jump(clock, {flag})
        assert clock.now() == 1000.0


def test_a_wait_without_a_deadline_is_nothing_to_jump_to(real: SimpleNamespace) -> None:
    clock, flag = ManualClock(autojump=0.05), Flag()
    decision = _Standstill()
    real.now += 10
    with Wait(clock, flag, None, is_a_call=False), Wait(ManualClock(), Flag(), 1001.0, is_a_call=False):
        decision.perhaps_jump(clock, {flag})
    assert clock.now() == 1000.0


def test_a_clock_that_cannot_jump_is_warned_of_once_and_not_after_a_jump(
    real: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "leasehold.testing")
    clock, flag = ManualClock(autojump=0.05), Flag()
    decision = _Standstill()
    real.now += standstill.PATIENCE - 0.1
    with Wait(clock, flag, 1030.0, is_a_call=False):
        decision.perhaps_jump(clock, {flag})
    real.now += standstill.PATIENCE
    decision.is_over(lambda: "worker")
    assert caplog.text == ""
    real.now += 0.1
    decision.is_over(lambda: "worker")
    real.now += 100
    decision.is_over(lambda: "worker")
    assert caplog.text.count("stands still while other threads run (worker)") == 1


# --- who is at work


def test_threads_stand_still_if_none_has_moved_come_or_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[dict[int, bytes]] = [
        {1: b"S 5", 2: b"S 7"}, {1: b"S 5", 2: b"S 7"}, {1: b"S 5", 2: b"S 8"}, {1: b"S 5", 2: b"S 8"}, {1: b"S 5"},
        {1: b"S 5"}, {1: b"R 5"}, {1: b"R 5"}, {1: b"D 5"}, {1: b"D 5"}, {1: b"S 5"}, {1: b"S 5", 3: b"S 1"},
        {1: b"S 5", 3: b"S 1"},
    ]  # fmt: skip
    others = _OtherThreads()
    ignored: list[set[int]] = []
    monkeypatch.setattr(others, "_look", lambda without: noted(ignored, without, looks.pop(0)))
    seen = [(others.stand_still({9}), set(others.runners)) for _ in range(13)]
    assert seen == [
        (False, {1, 2}), (True, set()), (False, {2}), (True, set()), (False, set()), (True, set()), (False, {1}),
        (False, {1}), (False, {1}), (False, {1}), (False, {1}), (False, {3}), (True, set()),
    ]  # fmt: skip
    assert ignored[0] == {9, threading.get_native_id()}


def test_a_look_has_every_thread_but_those_that_do_not_count() -> None:
    others, over = _OtherThreads(), threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    number = thread.native_id
    assert number is not None
    try:
        assert number in others._look(set())
        assert number not in others._look({number})
        assert standstill._names({number, 999_999_999}) == f"{thread.name}, thread 999999999"
        assert standstill._names(set()) == "unknown"
    finally:
        over.set()
        thread.join()
    assert standstill._facts(999_999_999) is None


def test_the_watchman_ends_when_no_call_waits_that_may_jump() -> None:
    watchman = _Watchman()
    thread: Any = object()
    clock, never, flag, another = ManualClock(), ManualClock(autojump=None), Flag(), Flag()
    watchman._thread = thread
    waits = [Wait(clock, flag, None, is_a_call=True), Wait(clock, another, None, is_a_call=True)]
    WAITS.update(waits)
    WAITS.add(Wait(clock, Flag(), None, is_a_call=False))
    WAITS.add(Wait(never, Flag(), None, is_a_call=True))
    assert watchman._waited_for() == {clock: {flag, another}}
    assert watchman._thread is thread
    WAITS.difference_update(waits)
    assert watchman._waited_for() == {}
    assert watchman._thread is None


def test_a_forked_child_has_no_waits_and_a_watchman_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    before = standstill._WATCHMAN
    monkeypatch.setattr(standstill, "_WATCHMAN", before)
    WAITS.add(Wait(ManualClock(), Flag(), None, is_a_call=False))
    standstill._forget_the_parent()
    assert standstill._WATCHMAN is not before
    assert not WAITS


# --- workers


def test_a_worker_is_joined_on_the_clock_and_does_not_wait_for_itself() -> None:
    runtime = ManualThreadRuntime(ManualClock(autojump=None))
    known, go = threading.Event(), threading.Event()
    answers: list[bool] = []

    async def work() -> None:
        known.wait()
        answers.append(await task.join(None))
        go.wait()

    task = runtime.spawn(work(), "worker")
    known.set()
    assert isinstance(task, _Worker)
    assert run(task.join(runtime.now())) is False, "the deadline is now"
    go.set()
    assert run(task.join()) is True
    assert answers == [True]


def test_a_worker_that_fails_is_over_too() -> None:
    async def story() -> None:
        runtime = ManualAsyncioRuntime(ManualClock(autojump=None))

        async def work() -> None:
            raise asyncio.CancelledError

        assert await asyncio.wait_for(runtime.spawn(work(), "worker").join(), 30) is True

    asyncio.run(story())


def test_waits_of_workers_are_no_calls_and_sleep_waits_for_the_clock() -> None:
    async def story() -> None:
        clock = ManualClock(autojump=None)
        runtime = ManualAsyncioRuntime(clock)
        task = runtime.spawn(runtime.sleep(5.0), "worker")
        call = asyncio.create_task(runtime.sleep(7.0))
        while len(WAITS) < 2:
            await asyncio.sleep(0)
        assert {(wait.deadline, wait.is_a_call) for wait in WAITS} == {(1005.0, False), (1007.0, True)}
        clock.advance(5)
        assert await task.join(1006.0)
        clock.advance(2)
        await call
        await runtime.sleep(0)
        await runtime.sleep(-1)
        assert not WAITS

    asyncio.run(story())


def test_a_thread_that_waits_is_known_by_its_number() -> None:
    clock = ManualClock(autojump=None)
    runtime = ManualThreadRuntime(clock)
    signal = runtime.signal()
    thread = threading.Thread(target=lambda: run(runtime.wait(signal, 1005.0)))
    thread.start()
    while not WAITS:
        pass
    (wait,) = WAITS
    assert (wait.thread, wait.is_a_call, wait.deadline) == (thread.native_id, True, 1005.0)
    clock.advance(5)
    thread.join(30)
    assert not thread.is_alive()
