"""The worker: started when needed, one at a time, gone after a while, joined at close."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from leasehold._runtimes.asyncio import AsyncioRuntime
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.kit import Worker
from tests.waiting import eventually

if TYPE_CHECKING:
    pass

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
