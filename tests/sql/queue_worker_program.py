"""A program that forks workers of queues when it is told to, so that the tests have processes to kill.

Its argument is the url of the database. A line `start` on its input forks one, and the answer is its pid. A worker has
two queues: the handler of `outside` writes its effect in a transaction of its own, in which it extends its claim; that
of `inside` writes it in the transaction of its completion. `hold KIND` forks one whose handler says `at JOB FENCE` and
waits for SIGUSR1. What a worker has done it says when it ends, as `worked COMPLETED REFUSED`.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from leasehold import Backoff
from leasehold.sql import Queue
from tests.sql.queue_connect import connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold.sql import Job

POLL = Backoff(("50ms",), factor=1, longest="50ms")
RETRY = Backoff(("50ms",), factor=1, longest="50ms", jitter="full")
OUTSIDE = Queue("outside", visibility="3s", max_attempts=None, backoff=RETRY)
INSIDE = Queue("inside", visibility="3s", max_attempts=None, backoff=RETRY)


class Effects:
    """What handlers write."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._local = threading.local()

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        if not hasattr(self._local, "connection"):
            self._local.connection = connect(self._url)
        connection = self._local.connection
        try:
            yield connection
        except BaseException:
            connection.rollback()
            raise
        connection.commit()

    def outside(self, job: Job) -> None:
        """A claim that was extended in the same transaction is the last one until that is committed."""
        time.sleep(random.random() * 0.02)
        with self._transaction() as tx:
            OUTSIDE.extend(tx, job)
            self._write(tx, job)
            time.sleep(random.random() * 0.01)

    def inside(self, tx: Any, job: Job) -> None:
        self._write(tx, job)
        time.sleep(random.random() * 0.02)

    def _write(self, tx: Any, job: Job) -> None:
        cursor = tx.cursor()
        cursor.execute(f"SELECT COUNT(*) FROM effect WHERE job = {job.id}")
        before = cursor.fetchone()[0]
        cursor.execute(f"INSERT INTO effect (job, fence, at_place) VALUES ({job.id}, {job.fence}, {before})")
        cursor.close()


def work(url: str) -> None:
    """Both queues, until SIGTERM."""
    effects = Effects(url)
    stops: list[Any] = []
    beside = threading.Thread(
        target=lambda: INSIDE.run(
            effects.inside, lambda: connect(url), in_transaction=True, poll=POLL, stop=stops.append
        ),
        daemon=True,
    )
    beside.start()
    worked = OUTSIDE.run(effects.outside, lambda: connect(url), concurrency=2, poll=POLL)
    for stop in stops:
        stop()
    beside.join()
    say("worked", worked.completed, worked.refused)


def hold(url: str, kind: str) -> None:
    """One job, whose handler waits for the test."""

    go = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: go.set())

    def handle(*arguments: Any) -> None:
        job = arguments[-1]
        say("at", job.id, job.fence)
        go.wait()

    queue = INSIDE if kind == "inside" else OUTSIDE
    worked = queue.run(handle, lambda: connect(url), in_transaction=kind == "inside", poll=POLL, until_idle=True)
    say("worked", worked.completed, worked.refused)


def say(*words: object) -> None:
    os.write(1, f"{' '.join(map(str, words))}\n".encode())  # one write, so that lines of two processes do not mix


def main(url: str) -> None:
    """Serve orders until the input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks for what killed ones leave behind
    for order in sys.stdin:
        verb, *words = order.split()
        child = os.fork()
        if child == 0:
            random.seed()
            if verb == "hold":
                hold(url, words[0])
            else:
                work(url)
            os._exit(0)
        say("pid", child)


if __name__ == "__main__":
    main(sys.argv[1])
