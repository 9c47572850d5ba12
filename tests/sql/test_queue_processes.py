"""Workers as real processes: killed, paused and stopped, while jobs are enqueued; nothing is lost or done twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold.sql import Queue
from tests.forms import sized
from tests.sql.queue_connect import connect
from tests.sql.queue_places import DATABASES, queue_url
from tests.waiting import catches
from verification.lab.process import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SOURCE = Path(leasehold.__file__).parents[1]
PROGRAM = Path(__file__).with_name("queue_worker_program.py")
LIMIT = 300.0
OUTSIDE = Queue("outside", visibility="3s", max_attempts=None)
INSIDE = Queue("inside", visibility="3s", max_attempts=None)
KILLS = sized(10, 200)


class Workers:
    """The processes of `queue_worker_program`."""

    def __init__(self, url: str) -> None:
        path = f"{SOURCE}{os.pathsep}{ROOT}"
        self._program = subprocess.Popen(
            [sys.executable, str(PROGRAM), url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        self.pids: list[int] = []

    def start(self, *order: str) -> int:
        assert self._program.stdin is not None
        self._program.stdin.write(" ".join(order or ("start",)) + "\n")
        self._program.stdin.flush()
        self.pids.append(int(self.line("pid")[0]))
        return self.pids[-1]

    def line(self, verb: str) -> list[str]:
        """The next line of this kind."""
        assert self._program.stdout is not None
        for line in self._program.stdout:
            first, *rest = line.split()
            if first == verb:
                return rest
        raise AssertionError(f"the program ended without saying {verb!r}")

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        self.pids.remove(pid)

    def close(self) -> None:
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self._program.stdin is not None
        self._program.stdin.close()
        self._program.wait()
        assert self._program.stdout is not None
        self._program.stdout.close()


class Place:
    """One database, and a connection of the test's own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = connect(url)

    def enqueue(self, numbers: range, *, commit: bool = True) -> None:
        for number in numbers:
            OUTSIDE.enqueue(self.connection, number, key=f"job-{number}")
            INSIDE.enqueue(self.connection, number)
        if commit:
            self.connection.commit()
        else:
            self.connection.rollback()

    def ask(self, question: str) -> list[tuple[Any, ...]]:
        cursor = self.connection.cursor()
        cursor.execute(question)
        rows = [tuple(row) for row in cursor.fetchall()]
        cursor.close()
        self.connection.rollback()
        return rows

    def count(self, condition: str) -> int:
        return int(self.ask(f"SELECT COUNT(*) FROM leasehold_queue WHERE {condition}")[0][0])

    def close(self) -> None:
        self.connection.close()


@pytest.fixture(params=DATABASES)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    place = Place(queue_url(request, request.param))
    yield place
    place.close()


@pytest.fixture
def workers(place: Place) -> Iterator[Workers]:
    workers = Workers(place.url)
    yield workers
    workers.close()


def effects_of(place: Place, queue: str) -> dict[int, list[int]]:
    """For each job of the queue, the fences of its effects in the order in which they were written."""
    found: dict[int, list[int]] = defaultdict(list)
    for job, fence, at_place in place.ask(
        "SELECT e.job, e.fence, e.at_place FROM effect e JOIN leasehold_queue q ON q.id = e.job "
        f"WHERE q.queue = '{queue}' ORDER BY e.job, e.at_place"
    ):
        assert at_place == len(found[int(job)]), f"two effects of job {job} did not know of each other"
        found[int(job)].append(int(fence))
    return found


def test_no_job_is_lost_or_done_out_of_order_when_workers_are_killed(place: Place, workers: Workers) -> None:
    for _ in range(2):
        workers.start()
    made = 0
    for kill in range(KILLS):
        place.enqueue(range(made, made + 5))
        place.enqueue(range(10_000_000 + kill, 10_000_001 + kill), commit=False)
        made += 5
        done = place.count("state = 'done'")
        wait_until(lambda: place.count("state = 'done'") > done, "a job done", LIMIT)  # noqa: B023 - called before it changes
        victim = random.choice(workers.pids)
        workers.kill(victim)
        workers.start()
    wait_until(lambda: place.count("state <> 'done'") == 0, "all jobs done", LIMIT)
    assert place.count("state = 'done'") == 2 * made

    fences = {int(job): int(fence) for job, fence in place.ask("SELECT id, fence FROM leasehold_queue")}
    outside = effects_of(place, "outside")
    assert len(outside) == made
    for job, seen in outside.items():
        assert seen == sorted(set(seen)), f"the effects of job {job} were written in the order {seen}"
        assert seen[-1] <= fences[job]
    inside = effects_of(place, "inside")
    assert inside == {job: [fences[job]] for job in inside}, "an effect without its completion, or two of them"
    assert len(inside) == made


def test_a_worker_that_was_paused_for_too_long_is_refused(place: Place, workers: Workers) -> None:
    connection = place.connection
    number = OUTSIDE.enqueue(connection, "one")
    connection.commit()
    pid = workers.start("hold", "outside")
    assert workers.line("at") == [str(number), "1"]
    os.kill(pid, signal.SIGSTOP)
    taken: list[Any] = []

    def take() -> bool:
        taken.extend(OUTSIDE.claim(connection))
        connection.commit()
        return bool(taken)

    wait_until(take, "the visibility over", LIMIT)
    assert (taken[0].id, taken[0].fence) == (number, 2)
    OUTSIDE.complete(connection, taken[0])
    connection.commit()
    os.kill(pid, signal.SIGCONT)
    os.kill(pid, signal.SIGUSR1)
    assert workers.line("worked") == ["0", "1"]
    assert place.ask(f"SELECT state, fence FROM leasehold_queue WHERE id = {number}") == [("done", 2)]


@pytest.mark.parametrize("place", ["postgresql", "mysql"], indirect=True)
def test_nobody_else_gets_a_job_that_is_done_in_a_transaction(place: Place, workers: Workers) -> None:
    """However long the worker is paused: the row is locked. In SQLite the whole file is."""
    connection = place.connection
    number = INSIDE.enqueue(connection, "one")
    connection.commit()
    pid = workers.start("hold", "inside")
    assert workers.line("at") == [str(number), "1"]
    os.kill(pid, signal.SIGSTOP)
    overdue = OUTSIDE.enqueue(connection, "clock", delay="3s")  # claimed after the visibility of the other is over
    connection.commit()
    ours: list[Any] = []

    def later() -> bool:
        ours.extend(OUTSIDE.claim(connection))
        connection.commit()
        return bool(ours)

    wait_until(later, "the visibility over", LIMIT)
    assert ours[0].id == overdue
    assert INSIDE.claim(connection, limit=5) == []
    connection.commit()
    os.kill(pid, signal.SIGCONT)
    os.kill(pid, signal.SIGUSR1)
    assert workers.line("worked") == ["1", "0"]
    assert place.ask(f"SELECT state, fence FROM leasehold_queue WHERE id = {number}") == [("done", 1)]


def test_a_worker_that_is_told_to_end_finishes_its_job_and_takes_no_other(place: Place, workers: Workers) -> None:
    connection = place.connection
    first, second = (OUTSIDE.enqueue(connection, payload) for payload in "ab")
    connection.commit()
    pid = workers.start("hold", "outside")
    assert workers.line("at") == [str(first), "1"]
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not catches(pid, signal.SIGTERM), "the signal handled", LIMIT)
    os.kill(pid, signal.SIGUSR1)
    assert workers.line("worked") == ["1", "0"]
    assert place.ask("SELECT id, state, attempts FROM leasehold_queue ORDER BY id") == [
        (first, "done", 1),
        (second, "ready", 0),
    ]
