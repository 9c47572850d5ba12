"""The two runtimes: waiting, signals, scatter, and the driver that finishes a coroutine with one send."""

from __future__ import annotations

import asyncio
import contextvars
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._runtimes.asyncio import AsyncioRuntime
from leasehold._runtimes.clock import SYSTEM_CLOCK, SystemClock
from leasehold._runtimes.threads import ThreadRuntime, ThreadSignal, run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from _typeshed import TraceFunction

    from leasehold.spi import Task


async def suspends() -> None:
    await asyncio.sleep(0)


def test_a_coroutine_that_suspends_under_the_blocking_runtime_is_named() -> None:
    with pytest.raises(RuntimeError, match="suspends suspended"):
        run(suspends())


def test_run_gives_the_result_and_passes_errors_on() -> None:
    async def seven() -> int:
        return 7

    async def fails() -> None:
        raise KeyError("x")

    assert run(seven()) == 7
    with pytest.raises(KeyError):
        run(fails())


@pytest.mark.parametrize("waiters", [1, 5])
def test_a_signal_wakes_all_threads_that_wait(waiters: int) -> None:
    runtime = ThreadRuntime()
    signal = ThreadSignal()
    woken: list[bool] = []
    threads = [
        threading.Thread(target=lambda: woken.append(run(runtime.wait(signal, runtime.now() + 300))), daemon=True)
        for _ in range(waiters)
    ]
    for thread in threads:
        thread.start()
    while len(signal._waiters) < waiters:  # one that comes after the flag is up need not be woken
        time.sleep(0.0001)
    signal.set()
    patience = time.monotonic() + 20
    for thread in threads:
        thread.join(max(0.0, patience - time.monotonic()))
    assert woken == [True] * waiters
    signal.clear()
    assert run(runtime.wait(signal, runtime.now() + 0.01)) is False


class Interrupted(BaseException):
    """What a signal handler raises."""


def interrupted_at(point: int, signal: ThreadSignal) -> bool:
    """Call `set`, and raise before its n-th instruction, as a signal handler may; False if it had fewer."""
    left = point

    def trace(frame: FrameType, event: str, _: object) -> TraceFunction | None:
        nonlocal left
        if frame.f_code is not ThreadSignal.set.__code__:
            return None
        frame.f_trace_opcodes = True
        left -= event == "opcode"
        if left == 0:
            raise Interrupted
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        signal.set()
    except Interrupted:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interruption_while_setting_a_signal_leaves_no_waiter_asleep_for_the_next_one() -> None:
    runtime = ThreadRuntime()
    for point in range(1, 500):
        signal = ThreadSignal()
        sleeper = threading.Thread(target=signal.wait, args=(SYSTEM_CLOCK, runtime.now() + 60))
        sleeper.start()
        while not signal._waiters:
            time.sleep(0.0001)
        interrupted = interrupted_at(point, signal)
        signal.set()
        sleeper.join(20)
        assert not sleeper.is_alive(), f"interrupted at instruction {point}, the waiter cannot be woken any more"
        if not interrupted:
            assert point > 10, "the function was not looked into"
            return
    raise AssertionError("the function never ended by itself")


def test_a_signal_raised_just_before_a_thread_sleeps_wakes_it() -> None:
    signal = ThreadSignal()

    class RaisedMeanwhile(list[Any]):
        def append(self, waiter: Any) -> None:
            signal.set()  # by another thread, which does not see this waiter yet
            super().append(waiter)

    signal._waiters = RaisedMeanwhile()
    thread = threading.Thread(target=lambda: signal.wait(SYSTEM_CLOCK, None), daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


def test_a_signal_raised_from_another_thread_wakes_an_asyncio_task() -> None:
    async def main() -> bool:
        runtime = AsyncioRuntime()
        signal = runtime.signal()
        threading.Timer(0.02, signal.set).start()
        return await runtime.wait(signal, runtime.now() + 30)

    assert asyncio.run(main()) is True


def test_a_signal_wakes_all_tasks_that_wait() -> None:
    async def main() -> list[bool]:
        runtime = AsyncioRuntime()
        signal = runtime.signal()
        waiters = [asyncio.create_task(runtime.wait(signal, runtime.now() + 300)) for _ in range(5)]
        await asyncio.sleep(0.01)
        signal.set()
        done, _ = await asyncio.wait(waiters, timeout=20)
        return [task.result() for task in done]

    assert asyncio.run(main()) == [True] * 5


@pytest.mark.parametrize("cancellations", [1, 2, 3])
def test_a_shielded_operation_ends_before_the_call_does_however_often_it_is_cancelled(cancellations: int) -> None:
    async def main() -> None:
        runtime = AsyncioRuntime()
        may_end = asyncio.Event()
        ended = 0

        async def operation() -> None:
            nonlocal ended
            await may_end.wait()
            ended += 1

        task = asyncio.create_task(runtime.shielded(operation))
        for _ in range(cancellations):
            await asyncio.sleep(0.01)
            task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == 1

    asyncio.run(main())


def test_a_task_that_waits_for_its_own_end_does_not_wait() -> None:
    async def on_a_loop() -> bool:
        runtime = AsyncioRuntime()
        tasks: list[Task] = []
        answers: list[bool] = []

        async def join_oneself() -> None:
            answers.append(await tasks[0].join(runtime.now() + 5))

        tasks.append(runtime.spawn(join_oneself(), "itself"))
        assert await tasks[0].join(runtime.now() + 60)
        return answers == [True]

    assert asyncio.run(on_a_loop())

    threads = ThreadRuntime()
    known = threading.Event()
    tasks: list[Task] = []
    answers: list[bool] = []

    async def join_oneself() -> None:
        known.wait(30)
        answers.append(await tasks[0].join(threads.now() + 5))

    tasks.append(threads.spawn(join_oneself(), "itself"))
    known.set()
    assert run(tasks[0].join(threads.now() + 60))
    assert answers == [True]


class Interruption(BaseException):
    """Out of a signal handler."""


def test_a_blocking_operation_that_is_interrupted_runs_again_before_the_interruption_goes_on() -> None:
    runs: list[str] = []

    async def operation() -> None:
        runs.append("run")
        if len(runs) == 1:
            raise Interruption

    async def fails() -> None:
        runs.append("run")
        raise KeyError("x")

    with pytest.raises(Interruption):
        run(ThreadRuntime().shielded(operation))
    assert len(runs) == 2
    with pytest.raises(KeyError):
        run(ThreadRuntime().shielded(fails))
    assert len(runs) == 3, "an error is an answer, and not repeated"


def test_the_clock_counts_the_time_that_the_host_was_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host cannot be suspended in a test: its clocks say here what they say after an hour of sleep."""
    shows = {time.CLOCK_BOOTTIME: 7_200.0, time.CLOCK_MONOTONIC: 3_600.0}
    monkeypatch.setattr(time, "clock_gettime", shows.__getitem__)
    monkeypatch.setattr(time, "monotonic", lambda: 3_600.0)
    clock = SystemClock()
    assert clock.now() == 7_200.0
    assert ThreadRuntime(clock).now() == 7_200.0
    assert AsyncioRuntime(clock).now() == 7_200.0


def test_the_clock_of_macos_counts_the_time_that_the_host_was_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    """There the clock that runs on is called CLOCK_MONOTONIC, and `time.monotonic` stands still."""
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    monkeypatch.setattr("leasehold._runtimes.clock.sys.platform", "darwin")
    monkeypatch.setattr(time, "clock_gettime", {time.CLOCK_MONOTONIC: 7_200.0}.__getitem__)
    monkeypatch.setattr(time, "monotonic", lambda: 3_600.0)
    assert SystemClock().now() == 7_200.0


def test_the_home_of_asyncio_is_the_running_loop_and_threads_have_none() -> None:
    async def home_is_here() -> bool:
        return AsyncioRuntime().home() is asyncio.get_running_loop()

    assert asyncio.run(home_is_here())
    assert ThreadRuntime().home() is None
    assert AsyncioRuntime().home() is None


def test_owner_values_are_long_fresh_and_not_repeated() -> None:
    runtime = ThreadRuntime()
    owners = {runtime.owner() for _ in range(1_000)}
    assert len(owners) == 1_000
    assert all(len(owner) * 4 >= 128 for owner in owners)
    chances = [runtime.random() for _ in range(1_000)]
    assert all(0 <= chance < 1 for chance in chances)
    assert 0.4 < sum(chances) / 1_000 < 0.6


class Answer:
    """A request that can only be performed."""

    def __init__(self, runtime: ThreadRuntime | AsyncioRuntime, delay: float, value: object) -> None:
        self._runtime, self._delay, self._value = runtime, delay, value

    async def perform(self) -> object:
        await self._runtime.sleep(self._delay)
        if isinstance(self._value, Exception):
            raise self._value
        return self._value


def majority(answers: Sequence[object]) -> bool:
    return sum(answer == "yes" for answer in answers) >= 2


def test_scatter_over_threads_stops_when_it_has_enough() -> None:
    runtime = ThreadRuntime()
    requests = [Answer(runtime, 0, "yes"), Answer(runtime, 0, "yes"), Answer(runtime, 5, "late")]
    answers = run(runtime.scatter(requests, majority, runtime.now() + 30))
    assert list(answers) == ["yes", "yes", None]


def test_scatter_over_asyncio_returns_answers_errors_and_what_is_open() -> None:
    async def main() -> list[object]:
        runtime = AsyncioRuntime()
        failure = OSError("down")
        requests = [Answer(runtime, 0, "no"), Answer(runtime, 0, failure), Answer(runtime, 60, "late")]
        answers = await runtime.scatter(requests, majority, runtime.now() + 0.05)
        assert answers[1] is failure
        return list(answers)

    assert asyncio.run(main())[::2] == ["no", None]


class Started:
    """A request that needs no task."""

    def __init__(self, delay: float, answer: object) -> None:
        self._delay, self._answer = delay, answer

    async def perform(self) -> object:
        raise AssertionError("a request that can be started is started")

    def start(self, done: Callable[[object], None]) -> None:
        if self._delay < 0:
            raise OSError("cannot be sent")
        asyncio.get_running_loop().call_later(self._delay, done, self._answer)


def test_scatter_over_asyncio_starts_requests_without_a_task_for_each() -> None:
    async def main() -> None:
        runtime = AsyncioRuntime()
        before = len(asyncio.all_tasks())
        requests = [Started(0, "yes"), Started(60, "late"), Started(-1, ""), Started(0.01, "yes")]
        answers = await runtime.scatter(requests, majority, runtime.now() + 30)
        assert len(asyncio.all_tasks()) == before
        assert [answers[0], answers[1], answers[3]] == ["yes", None, "yes"]
        assert isinstance(answers[2], OSError)
        assert list(await runtime.scatter([Started(60, "late")], majority, runtime.now() + 0.02)) == [None]
        assert list(await runtime.scatter([Started(0, "no")], majority, runtime.now() + 30)) == ["no"]

    asyncio.run(main())


class Held:
    """Requests that the test answers itself."""

    def __init__(self) -> None:
        self.answer: Callable[[object], None] | None = None

    async def perform(self) -> object:
        raise AssertionError("a request that can be started is started")

    def start(self, done: Callable[[object], None]) -> None:
        self.answer = done


def test_an_answer_that_comes_after_the_round_is_not_among_its_answers() -> None:
    """The round was decided without it."""

    async def by_start() -> None:
        runtime = AsyncioRuntime()
        late = Held()
        answers = await runtime.scatter([Started(0, "yes"), Started(0, "yes"), late], majority, runtime.now() + 30)
        assert late.answer is not None
        late.answer("no")
        assert list(answers) == ["yes", "yes", None]

    async def by_task() -> None:
        runtime = AsyncioRuntime()
        requests = [Answer(runtime, 0, "yes"), Answer(runtime, 0, "yes"), Answer(runtime, 0.02, "late")]
        answers = await runtime.scatter(requests, majority, runtime.now() + 30)
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)
        assert list(answers) == ["yes", "yes", None]

    asyncio.run(by_start())
    asyncio.run(by_task())


@pytest.mark.parametrize(
    ("delays", "answers", "enough"),
    [
        ((0, 0.02), ("no", "yes"), 1),
        ((0.02, 0), ("yes", "no"), 1),
        ((0, 0.02, 0.04), ("yes", "no", "yes"), 2),
        ((0, 0.02, 0.04), ("no", "no", "no"), 1),
        ((0, -1, 0.02), ("yes", "error", "yes"), 2),
        ((-1, -1), ("error", "error"), 1),
    ],
)
def test_scatter_waits_for_the_last_answer_until_it_has_enough(
    delays: tuple[float, ...], answers: tuple[str, ...], enough: int
) -> None:
    def is_enough(answers: Sequence[object]) -> bool:
        return answers.count("yes") >= enough

    async def main() -> Sequence[object]:
        runtime = AsyncioRuntime()
        requests = [Started(delay, answer) for delay, answer in zip(delays, answers, strict=True)]
        return await runtime.scatter(requests, is_enough, runtime.now() + 30)

    found = asyncio.run(main())
    assert tuple("error" if isinstance(answer, OSError) else answer for answer in found) == answers


class Line:
    """A request over a real socket that sends at once and collects later."""

    def __init__(self, answer: bytes | None) -> None:
        self._mine, self._theirs = socket.socketpair()
        self._answer = answer
        self._got = b""

    async def perform(self) -> str:
        raise AssertionError("a request that can be polled is polled")

    def send(self) -> None:
        self._mine.sendall(b"question\n")
        if self._answer is not None:
            self._theirs.sendall(self._answer)

    def fileno(self) -> int:
        return self._mine.fileno()

    def receive(self) -> tuple[str] | None:
        self._got += self._mine.recv(3)
        return (self._got.decode().strip(),) if self._got.endswith(b"\n") else None

    def close(self) -> None:
        self._mine.close()
        self._theirs.close()


def test_scatter_polls_many_sockets_on_the_calling_thread() -> None:
    runtime = ThreadRuntime()
    lines = [Line(b"yes\n"), Line(None), Line(b"yes\n")]
    before = threading.active_count()
    answers = run(runtime.scatter(lines, majority, runtime.now() + 30))
    assert list(answers) == ["yes", None, "yes"]
    assert threading.active_count() == before
    for line in lines:
        line.close()


def test_scatter_works_where_the_system_has_no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold._runtimes.threads.poll", None)
    runtime = ThreadRuntime()
    lines = [Line(b"yes\n"), Line(None), Line(b"yes\n")]
    assert list(run(runtime.scatter(lines, majority, runtime.now() + 30))) == ["yes", None, "yes"]
    assert list(run(runtime.scatter([lines[1]], majority, runtime.now() + 0.05))) == [None]
    for line in lines:
        line.close()


class LineThatEnds(Line):
    """Closes its socket with the answer, like a connection that is one too many to be kept."""

    def receive(self) -> tuple[str] | None:
        answer = super().receive()
        if answer is not None:
            self.close()
        return answer


def test_scatter_collects_from_requests_that_close_their_sockets_with_the_answer() -> None:
    runtime = ThreadRuntime()
    lines = [LineThatEnds(b"no\n"), LineThatEnds(b"yes\n"), LineThatEnds(b"yes\n")]
    assert list(run(runtime.scatter(lines, lambda _: False, runtime.now() + 30))) == ["no", "yes", "yes"]


class SlowToSend(Line):
    """Has to connect first, which takes all the time that there was."""

    def send(self) -> None:
        time.sleep(0.1)
        raise OSError("no connection")


def test_scatter_reads_the_answers_that_are_there_when_sending_took_all_the_time() -> None:
    runtime = ThreadRuntime()
    lines = [Line(b"yes\n"), SlowToSend(None), Line(b"yes\n")]
    answers = run(runtime.scatter(lines, majority, runtime.now() + 0.05))
    assert [answers[0], answers[2]] == ["yes", "yes"]
    for line in lines:
        line.close()


def test_scatter_gives_up_at_the_deadline_and_keeps_errors_apart() -> None:
    runtime = ThreadRuntime()
    dead, silent = Line(b"yes\n"), Line(None)
    dead.close()
    answers = run(runtime.scatter([dead, silent], majority, runtime.now() + 0.05))
    assert isinstance(answers[0], OSError)
    assert answers[1] is None
    silent.close()


def test_a_blocking_runtime_calls_what_blocks_on_the_calling_thread() -> None:
    runtime = ThreadRuntime()
    assert runtime.blocking
    assert run(runtime.offload(threading.get_ident)) == threading.get_ident()


def test_an_event_loop_goes_on_while_a_blocking_call_is_offloaded() -> None:
    async def main() -> None:
        runtime = AsyncioRuntime()
        assert not runtime.blocking
        loop_goes_on = threading.Event()
        asyncio.get_running_loop().call_soon(loop_goes_on.set)
        here = contextvars.ContextVar("here", default="nowhere")
        here.set("with the caller")
        assert await runtime.offload(lambda: (loop_goes_on.wait(30), here.get())) == (True, "with the caller")
        with pytest.raises(ValueError, match="invalid literal"):
            await runtime.offload(lambda: int("x"))

    asyncio.run(main())


@pytest.mark.parametrize("cancellations", [1, 2])
def test_an_offloaded_call_ends_before_the_cancellation_of_its_caller_is_raised(cancellations: int) -> None:
    async def main() -> None:
        started, may_end, ended = threading.Event(), threading.Event(), threading.Event()

        def call() -> None:
            started.set()
            may_end.wait(30)
            ended.set()

        task = asyncio.create_task(AsyncioRuntime().offload(call))
        while not started.is_set():
            await asyncio.sleep(0.001)
        for _ in range(cancellations):
            task.cancel()
            await asyncio.sleep(0.01)
        assert not task.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    asyncio.run(main())
