"""The worker: started when needed, one at a time, gone after a while, joined at close."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._runtimes.asyncio import AsyncioRuntime
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.kit import Worker
from leasehold.kit.worker import _Run
from tests.unit.planned_waits import PlannedWaits
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "leasehold test worker"


class Work:
    def __init__(self) -> None:
        self.times = 0
        self.fails = False
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    async def __call__(self) -> None:
        self.entered.set()
        self.gate.wait(20)
        self.times += 1
        if self.fails:
            raise RuntimeError("not this time")


def running() -> int:
    return sum(thread.name == NAME for thread in threading.enumerate())


def test_it_runs_when_started_lingers_and_ends_by_itself() -> None:
    work = Work()
    worker = Worker(ThreadRuntime(), work, NAME, linger=0.1)
    assert running() == 0
    worker.start()
    eventually(lambda: work.times == 1)
    worker.start()
    eventually(lambda: work.times == 2)
    assert running() == 1
    eventually(lambda: running() == 0)
    worker.start()
    eventually(lambda: work.times == 3)
    run(worker.close())
    assert running() == 0


def test_starts_during_the_work_are_one_more_round() -> None:
    work = Work()
    work.gate.clear()
    worker = Worker(ThreadRuntime(), work, NAME)
    for _ in range(50):
        worker.start()
    eventually(lambda: running() == 1)
    work.gate.set()
    eventually(lambda: work.times >= 1)
    run(worker.close())
    assert work.times <= 2
    assert running() == 0


def test_a_start_during_the_work_has_it_performed_again() -> None:
    """The work may have looked already at what the start is about."""
    work = Work()
    work.gate.clear()
    worker = Worker(ThreadRuntime(), work, NAME)
    worker.start()
    assert work.entered.wait(60)
    worker.start()
    work.gate.set()
    eventually(lambda: work.times == 2)
    run(worker.close())


def test_work_that_fails_is_done_again_the_next_time() -> None:
    work = Work()
    work.fails = True
    worker = Worker(ThreadRuntime(), work, NAME)
    worker.start()
    eventually(lambda: work.times == 1)
    worker.wake()
    eventually(lambda: work.times == 2)
    run(worker.close())


def test_it_stays_while_it_is_needed() -> None:
    work, needed = Work(), True
    worker = Worker(ThreadRuntime(), work, NAME, linger=0.01, is_needed=lambda: needed)
    worker.start()
    eventually(lambda: work.times == 1)
    time.sleep(0.1)
    assert running() == 1
    needed = False
    eventually(lambda: running() == 0)


def test_a_closed_worker_starts_no_more() -> None:
    work = Work()
    worker = Worker(ThreadRuntime(), work, NAME)
    run(worker.close())
    worker.start()
    assert running() == 0
    assert work.times == 0


def test_an_interrupted_start_leaves_a_worker_that_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    work, runtime = Work(), ThreadRuntime()
    worker = Worker(runtime, work, NAME)

    def interrupted(*_: object) -> object:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runtime, "spawn", interrupted)
        with pytest.raises(KeyboardInterrupt):
            worker.start()
    worker.start()
    eventually(lambda: work.times == 1)
    run(worker.close())


def test_a_forked_child_starts_a_worker_of_its_own() -> None:
    work = Work()
    worker = Worker(ThreadRuntime(), work, NAME)
    worker.start()
    eventually(lambda: work.times == 1)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            worker.start()
            eventually(lambda: work.times == 2)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    run(worker.close())


def test_under_asyncio_it_is_a_task_that_ends_with_close() -> None:
    async def main() -> int:
        work = Work()
        runtime = AsyncioRuntime()
        worker = Worker(runtime, work, NAME)
        worker.start()
        while work.times < 1:
            await asyncio.sleep(0)
        await worker.close()
        return len(asyncio.all_tasks())

    assert asyncio.run(main()) == 1


# --- step by step


class Kept(PlannedWaits):
    """Tasks are kept, and run by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks: list[Any] = []
        self.names: list[str] = []
        self.joined: list[float | None] = []

    def spawn(self, work: Any, name: str) -> Any:
        self.tasks.append(work)
        self.names.append(name)
        return self

    async def join(self, deadline: float | None = None) -> bool:
        self.joined.append(deadline)
        return True


def made(
    work: Callable[[], object] = lambda: None, *, is_needed: Callable[[], bool] = bool
) -> tuple[Kept, Worker, list[float]]:
    """A worker that lingers for two seconds, and when its work was performed."""
    runtime, performed = Kept(), list[float]()

    async def perform() -> None:
        performed.append(runtime.now())
        work()

    return runtime, Worker(runtime, perform, NAME, linger=2.0, is_needed=is_needed), performed


def test_it_lingers_once_more_after_each_start_and_is_spawned_once_for_all() -> None:
    runtime, worker, performed = made()
    worker.start()
    worker.start()
    assert runtime.names == [NAME]
    begun = runtime.now()

    def start_again() -> None:
        runtime.clock.advance(1.5)
        worker.start()

    runtime.plan = [start_again]
    run(runtime.tasks[0])
    assert performed == [begun, begun + 1.5]
    assert runtime.waits == [begun + 2.0, begun + 3.5]
    assert runtime.names == [NAME]
    worker.start()
    assert runtime.names == [NAME] * 2, "it has ended"


def test_a_start_at_the_moment_at_which_it_would_end_is_not_lost() -> None:
    asked: list[float] = []

    def is_needed() -> bool:
        asked.append(runtime.now())
        if len(asked) == 1:
            worker.start()
        return False

    runtime, worker, performed = made(is_needed=is_needed)
    worker.start()
    run(runtime.tasks[0])
    assert len(performed) == 2
    assert len(runtime.names) == 1


def test_while_it_is_needed_it_waits_on_without_working() -> None:
    answers = iter([True, True, False])
    runtime, worker, performed = made(is_needed=lambda: next(answers))
    worker.start()
    run(runtime.tasks[0])
    assert len(performed) == 1
    assert len(runtime.waits) == 3


def test_an_interruption_of_its_work_ends_it_and_the_next_start_begins_anew() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    runtime, worker, _ = made(interrupt)
    worker.start()
    with pytest.raises(KeyboardInterrupt):
        run(runtime.tasks[0])
    worker.start()
    assert len(runtime.names) == 2
    runtime.tasks[1].close()


def test_closing_ends_it_after_its_work_and_waits_for_a_bounded_time() -> None:
    runtime, worker, performed = made(lambda: run(worker.close()))
    worker.start()
    run(runtime.tasks[0])
    assert len(performed) == 1
    assert runtime.waits == []
    assert runtime.joined == [runtime.now() + 2.0]
    worker.start()
    assert len(runtime.names) == 1


def test_a_task_that_never_took_its_first_step_leaves_nothing() -> None:
    runtime, worker, performed = made()
    worker.start()
    runtime.tasks[0].close()
    assert performed == []


def test_a_forked_child_does_not_wait_for_the_task_of_its_parent() -> None:
    joined: list[float] = []

    class Task:
        async def join(self, deadline: float) -> bool:
            joined.append(deadline)
            return False

    for process, waits in ((os.getpid(), 1), (os.getppid(), 0)):
        worker = Worker(ThreadRuntime(), Work(), NAME)
        worker._run = _Run(process)
        worker._run.task = Task()  # type: ignore[assignment]
        run(worker.close())
        assert len(joined) == waits
        joined.clear()
