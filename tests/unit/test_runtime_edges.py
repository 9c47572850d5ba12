"""The runtimes at their edges: loops that are closed, deadlines that are far away, threads and tasks that are over."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from leasehold._runtimes.asyncio import AsyncioRuntime, AsyncioSignal
from leasehold._runtimes.clock import SYSTEM_CLOCK, look_again
from leasehold._runtimes.event_loops import before_shutdown
from leasehold._runtimes.homes import WithoutLoops
from leasehold._runtimes.threads import ThreadRuntime, ThreadSignal, run
from leasehold.errors import ConfigurationError
from leasehold.testing.clock import ManualClock
from tests.waiting import eventually


class Coarse:
    """A clock that has to be looked at."""

    granularity: float | None = 0.5

    def now(self) -> float:
        return 0.0


@pytest.mark.parametrize(("timeout", "seconds"), [(None, 0.5), (9.0, 0.5), (0.2, 0.2), (0.0, 0.0)])
def test_a_clock_that_is_turned_by_hand_is_looked_at_often(timeout: float | None, seconds: float) -> None:
    assert look_again(timeout, Coarse()) == seconds
    assert look_again(timeout, SYSTEM_CLOCK) == timeout


# Threads


def test_a_coroutine_that_suspended_is_closed() -> None:
    left: list[str] = []

    async def suspends() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            left.append("closed")

    with pytest.raises(RuntimeError, match="suspended under the blocking runtime"):
        run(suspends())
    assert left == ["closed"]


def test_a_thread_can_wait_for_longer_than_the_operating_system_allows() -> None:
    signal = ThreadSignal()

    def set_it() -> None:
        eventually(lambda: signal._waiters)
        signal.set()

    threading.Thread(target=set_it).start()
    assert signal.wait(SYSTEM_CLOCK, SYSTEM_CLOCK.now() + 1e12) is True
    assert signal._waiters == []


@pytest.mark.parametrize("deadline", [-1.0, 0.0])
def test_a_wait_whose_deadline_has_come_does_not_begin(deadline: float) -> None:
    clock = ManualClock(autojump=None)
    signal = ThreadSignal()
    assert signal.wait(clock, clock.now() + deadline) is False
    signal.set()
    assert signal.wait(clock, clock.now() + deadline) is True

    async def main() -> None:
        flag = AsyncioSignal()
        assert await flag.wait(clock, clock.now() + deadline) is False
        flag.set()
        assert await flag.wait(clock, clock.now() + deadline) is True

    asyncio.run(main())


def test_a_waiter_that_was_woken_already_does_not_keep_the_others_asleep() -> None:
    signal = ThreadSignal()
    awake: Any = threading.Lock()  # not locked: it cannot be released again
    signal._waiters.append(awake)
    thread = threading.Thread(target=lambda: signal.wait(SYSTEM_CLOCK, None), daemon=True)
    thread.start()
    eventually(lambda: len(signal._waiters) == 2)
    signal.set()
    thread.join(60)
    assert not thread.is_alive()


def test_work_of_a_thread_is_named_and_does_not_keep_the_program_alive() -> None:
    runtime, go_on, seen = ThreadRuntime(), ThreadSignal(), list[threading.Thread]()

    async def work() -> None:
        seen.append(threading.current_thread())
        go_on.wait(SYSTEM_CLOCK, None)

    task = runtime.spawn(work(), "leasehold keeper")
    assert run(task.join(runtime.now())) is False
    go_on.set()
    assert run(task.join(runtime.now() + 60)) is True
    assert (seen[0].name, seen[0].daemon, seen[0].is_alive()) == ("leasehold keeper", True, False)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_work_that_failed_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    async def fails() -> None:
        raise ValueError

    runtime = ThreadRuntime()
    assert run(runtime.spawn(fails(), "x").join(runtime.now() + 60)) is True


def test_who_runs_is_the_thread_itself_and_a_guard_may_be_entered_twice() -> None:
    runtime = ThreadRuntime()
    assert runtime.current() is threading.current_thread()
    for guard in (runtime.guard(), AsyncioRuntime().guard()):
        with guard, guard:
            pass


def test_a_blocking_operation_that_is_torn_down_is_not_repeated() -> None:
    runs: list[str] = []

    async def operation() -> None:
        runs.append("run")
        raise GeneratorExit

    with pytest.raises(GeneratorExit):
        run(ThreadRuntime().shielded(operation))
    assert runs == ["run"]


def test_where_there_are_no_loops_everything_is_at_home() -> None:
    done: list[str] = []

    async def operation() -> None:
        done.append("done")

    homes = WithoutLoops()
    assert run(homes.at_home(None, operation, 0.0)) is True
    assert done == ["done"]
    assert (homes.home(), homes.has_ended(None), homes.before_end(operation)) == (None, False, None)


@pytest.mark.parametrize("seconds", [0.0, 3600.0])
def test_a_sleep_lasts_until_the_clock_that_is_turned_by_hand_says_so(seconds: float) -> None:
    clock = ManualClock(autojump=None)
    runtime = ThreadRuntime(clock)
    began = clock.now()
    thread = threading.Thread(target=lambda: run(runtime.sleep(seconds)), daemon=True)
    thread.start()
    if seconds:
        thread.join(0.02)
        assert thread.is_alive()
        clock.advance(seconds)
    thread.join(60)
    assert not thread.is_alive()
    assert clock.now() == began + seconds


# Event loops


def test_a_signal_of_a_loop_that_was_closed_can_still_be_set_from_anywhere() -> None:
    signal = AsyncioSignal()
    signal.set()
    signal.clear()  # before anybody has waited
    asyncio.run(asyncio.wait_for(_waits(signal), 60))
    thread = threading.Thread(target=signal.set)
    thread.start()
    thread.join(60)
    assert signal.is_set()
    signal.set()
    signal.clear()
    assert not signal.is_set()


async def _waits(signal: AsyncioSignal) -> None:
    assert await signal.wait(SYSTEM_CLOCK, SYSTEM_CLOCK.now() + 0.001) is False
    assert signal._waiters == set()


def test_a_signal_moves_with_its_waiters_to_another_loop_in_another_thread() -> None:
    signal = AsyncioSignal()
    asyncio.run(_waits(signal))
    heard: list[bool] = []

    def another() -> None:
        heard.append(asyncio.run(signal.wait(SYSTEM_CLOCK, SYSTEM_CLOCK.now() + 60)))

    thread = threading.Thread(target=another)
    thread.start()
    eventually(lambda: signal._waiters)
    signal.set()
    thread.join(60)
    assert heard == [True]


def test_a_signal_may_be_set_twice_before_anybody_has_woken_up() -> None:
    async def main() -> None:
        signal = AsyncioSignal()
        waiting = [asyncio.create_task(signal.wait(SYSTEM_CLOCK, SYSTEM_CLOCK.now() + 60)) for _ in range(2)]
        await asyncio.sleep(0)
        signal.set()
        signal.clear()
        signal.set()
        assert await asyncio.gather(*waiting) == [True, True]

    asyncio.run(main())


def test_a_join_ends_when_the_clock_that_is_turned_by_hand_says_so() -> None:
    async def main() -> None:
        clock = ManualClock(autojump=None)
        runtime = AsyncioRuntime(clock)

        async def for_ever() -> None:
            await asyncio.sleep(3600)

        joining = asyncio.create_task(runtime.spawn(for_ever(), "leasehold work").join(clock.now() + 3600))
        await asyncio.sleep(0.005)
        assert not joining.done()
        clock.advance(3600)
        assert await asyncio.wait_for(joining, 60) is False

    asyncio.run(main())


class Started:
    """A request that is answered in the next turn of the loop."""

    async def perform(self) -> object:
        raise AssertionError

    def start(self, done: Any) -> None:
        asyncio.get_running_loop().call_soon(done, "yes")


class Asked:
    """A request that can only be performed."""

    async def perform(self) -> object:
        return "no"


def test_requests_of_several_kinds_are_all_asked() -> None:
    class Sent(Asked):
        def receive(self) -> None:
            raise AssertionError

    class Begun(Asked):
        def start(self, done: Any) -> None:
            raise AssertionError

    async def main() -> list[object]:
        runtime = AsyncioRuntime()
        return list(await runtime.scatter([Begun(), Asked()], lambda _: False, runtime.now() + 60))

    threads = ThreadRuntime()
    assert asyncio.run(main()) == ["no", "no"]
    assert list(run(threads.scatter([Sent(), Asked()], lambda _: False, threads.now() + 60))) == ["no", "no"]


def test_what_ended_before_its_deadline_leaves_no_timer_behind() -> None:
    """A loop keeps each until its time comes: thousands of waits of an hour would pile up."""

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        runtime, signal = AsyncioRuntime(), AsyncioSignal()
        loop.call_soon(signal.set)
        assert await runtime.wait(signal, runtime.now() + 3600)
        assert list(await runtime.scatter([Started(), Started()], lambda _: False, runtime.now() + 3600)) == ["yes"] * 2
        assert [timer for timer in loop._scheduled if not timer.cancelled()] == []

    asyncio.run(main())


def test_a_task_is_kept_while_it_runs_and_not_longer() -> None:
    async def main() -> None:
        runtime = AsyncioRuntime()

        async def work() -> None:
            assert len(runtime._tasks) == 1
            await asyncio.sleep(0)

        task = runtime.spawn(work(), "leasehold work")
        assert await task.join(runtime.now() + 60) is True
        await asyncio.sleep(0)
        assert runtime._tasks == set()
        assert await task.join(runtime.now() - 1) is True, "it is over, however late one asks"

    asyncio.run(main())


def test_a_loop_that_was_closed_has_ended_and_its_tasks_are_forgotten() -> None:
    runtime = AsyncioRuntime()
    loop = asyncio.new_event_loop()
    kept: list[Any] = []

    async def for_ever() -> None:
        await asyncio.sleep(3600)

    async def begin() -> None:
        runtime.spawn(for_ever(), "leasehold keeper")
        await asyncio.sleep(0)

    loop.run_until_complete(begin())
    kept.extend(runtime._tasks)
    assert not runtime.has_ended(loop)
    assert len(runtime._tasks) == 1
    loop.close()
    assert runtime.has_ended(loop)
    assert runtime._tasks == set()
    kept[0].get_coro().close()


def test_what_is_done_at_home_is_waited_for_and_not_begun_where_no_loop_runs() -> None:
    runtime = AsyncioRuntime()
    done: list[object] = []
    still, running = asyncio.new_event_loop(), asyncio.new_event_loop()
    thread = threading.Thread(target=running.run_forever)
    thread.start()

    async def operation() -> None:
        await asyncio.sleep(0.001)
        done.append(asyncio.get_running_loop())

    may_end = threading.Event()

    async def slow() -> None:
        while not may_end.is_set():
            await asyncio.sleep(0.001)

    async def everything_is_over() -> None:
        await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not asyncio.current_task()))

    async def main() -> list[bool]:
        soon, late = runtime.now() + 0.01, runtime.now() + 60
        return [
            await runtime.at_home(still, operation, late),
            await runtime.at_home(running, operation, late),
            await runtime.at_home(running, slow, soon),
        ]

    assert asyncio.run(main()) == [False, True, True]
    assert done == [running]
    still.close()
    assert asyncio.run(runtime.at_home(still, operation, runtime.now() + 60)) is False
    may_end.set()
    asyncio.run_coroutine_threadsafe(everything_is_over(), running).result(60)
    running.call_soon_threadsafe(running.stop)
    thread.join(60)
    running.close()


def test_what_comes_before_the_end_of_a_loop_needs_one_that_runs_and_is_not_about_to_end() -> None:
    closed: list[str] = []

    async def close() -> None:
        closed.append("closed")

    with pytest.raises(ConfigurationError, match="needs a running asyncio event loop"):
        before_shutdown(close)

    async def main() -> None:
        kept = before_shutdown(close)
        assert kept is not None
        await asyncio.get_running_loop().shutdown_asyncgens()
        assert closed == ["closed"]
        assert before_shutdown(close) is None, "the loop would only warn"

    asyncio.run(main())
    assert closed == ["closed"]


@pytest.mark.parametrize("seconds", [0.0, 3600.0])
def test_a_sleep_on_a_loop_lasts_until_the_clock_that_is_turned_by_hand_says_so(seconds: float) -> None:
    async def main() -> None:
        clock = ManualClock(autojump=None)
        runtime = AsyncioRuntime(clock)
        sleeping = asyncio.create_task(runtime.sleep(seconds))
        await asyncio.sleep(0.005)
        assert sleeping.done() is (seconds == 0)
        clock.advance(seconds)
        await asyncio.wait_for(sleeping, 60)

    asyncio.run(main())


def test_the_first_cancellation_of_an_offloaded_call_is_the_one_that_is_raised() -> None:
    async def main() -> None:
        may_end = threading.Event()
        task = asyncio.create_task(AsyncioRuntime().offload(lambda: may_end.wait(60) and 1 / 0))
        for reason in ("first", "second"):
            await asyncio.sleep(0.005)
            task.cancel(reason)
        await asyncio.sleep(0.005)
        may_end.set()
        with pytest.raises(asyncio.CancelledError, match="first"):
            await task

    asyncio.run(main())


def test_a_block_that_was_left_is_not_interrupted_any_more() -> None:
    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        scope = AsyncioRuntime().scope()
        assert await scope.leave(None) is False
        scope.cancel()
        assert task.cancelling() == 0
        await asyncio.sleep(0)

    asyncio.run(main())


def test_every_task_is_named_after_what_it_does() -> None:
    """A closed loop's tasks of ours are known by their names, and so are they in a list of all tasks."""
    runtime = AsyncioRuntime()
    names: list[str] = []

    async def note() -> None:
        task = asyncio.current_task()
        assert task is not None
        names.append(task.get_name())

    async def interrupted() -> None:
        await note()
        if len(names) == 3:
            raise asyncio.CancelledError

    async def main() -> None:
        await runtime.spawn(note(), "leasehold keeper of x").join(None)
        await runtime.at_home(asyncio.get_running_loop(), note, runtime.now() + 60)
        with pytest.raises(asyncio.CancelledError):
            await runtime.shielded(interrupted)

    asyncio.run(main())
    assert [names[0], names[1], names[3]] == ["leasehold keeper of x", "leasehold closing", "leasehold clean-up"]


def test_what_fails_at_home_is_waited_for_no_longer_than_it_runs() -> None:
    runtime = AsyncioRuntime()

    async def operation() -> None:
        raise LookupError

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        at_home = runtime.at_home(loop, operation, runtime.now() + 3600)
        assert await asyncio.wait_for(at_home, 60) is True

    asyncio.run(main())
