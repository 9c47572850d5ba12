"""The two runtimes: waiting, signals, scatter, and the driver that finishes a coroutine with one send."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from leasehold._runtimes.asyncio import AsyncioRuntime
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    signal = runtime.signal()
    woken: list[bool] = []
    threads = [
        threading.Thread(target=lambda: woken.append(run(runtime.wait(signal, runtime.now() + 30))))
        for _ in range(waiters)
    ]
    for thread in threads:
        thread.start()
    signal.set()
    for thread in threads:
        thread.join(30)
    assert woken == [True] * waiters
    signal.clear()
    assert run(runtime.wait(signal, runtime.now() + 0.01)) is False


def test_a_signal_raised_from_another_thread_wakes_an_asyncio_task() -> None:
    async def main() -> bool:
        runtime = AsyncioRuntime()
        signal = runtime.signal()
        threading.Timer(0.02, signal.set).start()
        return await runtime.wait(signal, runtime.now() + 30)

    assert asyncio.run(main()) is True


def test_a_client_refuses_another_event_loop() -> None:
    runtime = AsyncioRuntime()

    async def bind() -> None:
        runtime.bind()

    asyncio.run(bind())
    with pytest.raises(ConfigurationError, match="another event loop"):
        asyncio.run(bind())


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


def test_scatter_gives_up_at_the_deadline_and_keeps_errors_apart() -> None:
    runtime = ThreadRuntime()
    dead, silent = Line(b"yes\n"), Line(None)
    dead.close()
    answers = run(runtime.scatter([dead, silent], majority, runtime.now() + 0.05))
    assert isinstance(answers[0], OSError)
    assert answers[1] is None
    silent.close()
