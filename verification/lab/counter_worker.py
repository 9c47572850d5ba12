"""One worker of the counter experiment: reads a counter in a database, adds one and writes it back, under a lock.

It never looks whether its lease is lost while it does so, as a process cannot that is paused in the wrong place; and it
stops itself now and then between the read and the write. `counters`, which runs it, wakes it up. What it writes to the
pipe, one line each: `stop NUMBER`, `over NUMBER` (it got the lock from one that did not release), `done {JSON}`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import leasehold
from leasehold.sql import guard, is_retryable
from verification.lab import counter_databases

__all__ = ["Job", "Tally", "TooLate", "Worker", "main"]


@dataclass(frozen=True, slots=True)
class Job:
    """The orders of a worker."""

    number: int
    folder: str
    url: str
    level: str
    check: str  # "guard", or "write-only": the number is looked at with the write and not before
    updates: int
    pause_rate: float
    ttl: float
    think: float  # how long the first holder after a take-over takes between its read and its write
    seed: int
    pipe: int
    driver: str = "psycopg"


@dataclass(slots=True)
class Tally:
    """What a worker has seen; `acknowledged` counts increments whose commit was confirmed."""

    acknowledged: int = 0
    stale: int = 0
    retries: int = 0
    pauses: int = 0
    take_overs: int = 0
    store_errors: int = 0


class TooLate(Exception):
    """A newer holder was here."""


class Worker:
    """Works until its share of the updates is acknowledged."""

    _reads_first = False  # whether a transaction may also read before the guard

    def __init__(self, job: Job) -> None:
        self._job = job
        self._random = random.Random(job.seed)
        self._client = leasehold.connect(f"sqlite:///{Path(job.folder) / 'locks.db'}", label=f"worker {job.number}")
        self._lock = self._client.lock("counter", ttl=job.ttl)
        self._tally = Tally()
        self._open()

    def _open(self) -> None:
        self._database = counter_databases.connect(self._job.url, self._job.level)
        self._reads_first = self._database.reads_first

    def close(self) -> None:
        """Leave the database."""
        self._database.close()

    def _roll_back(self) -> None:
        self._database.rollback()

    def work(self) -> None:
        """Take the lock, add one a few times, release, again and again."""
        with self._client, closing(self):
            while self._tally.acknowledged < self._job.updates:
                try:
                    self._hold()
                except leasehold.BackendError:  # another was stopped while it had the lock file for itself
                    self._tally.store_errors += 1
        self._say(f"done {json.dumps(asdict(self._tally))}")

    def _hold(self) -> None:
        lease = self._lock.acquire()
        try:
            self._use(lease)
        finally:
            lease.release()

    def _use(self, lease: leasehold.Lease) -> None:
        think = 0.0
        if lease.abandoned:
            self._tally.take_overs += 1
            self._say(f"over {self._job.number}")
            think = self._job.think
        for _ in range(self._random.randint(1, 12)):
            if lease.lost.is_set() or self._tally.acknowledged >= self._job.updates:
                return
            try:
                self._add_one(lease, think)
            except (TooLate, leasehold.StaleFence):
                self._tally.stale += 1
                return
            self._tally.acknowledged += 1
            think = 0.0

    def _add_one(self, lease: leasehold.Lease, think: float) -> None:
        """One update; what the database asks to run again is run again, from its beginning."""
        units = [self._in_one_transaction, self._in_two_transactions]
        if self._reads_first and self._job.check == "guard":
            units.append(self._reading_first)
        unit = self._random.choice(units)
        while True:
            try:
                unit(lease, think)
            except Exception as error:
                self._roll_back()
                if not is_retryable(error):
                    raise
                self._tally.retries += 1
            else:
                return

    def _in_one_transaction(self, lease: leasehold.Lease, think: float) -> None:
        with self._database.transaction():
            n = self._read(lease)
            self._pause(think)
            self._write(lease, n + 1)

    def _reading_first(self, lease: leasehold.Lease, think: float) -> None:
        """What was read before the guard is as good as the guard says."""
        with self._database.transaction():
            n = self._database.number("SELECT n FROM counter")
            self._pause(think)
            guard(self._database.driver, lease)
            self._write(lease, n + 1)

    def _in_two_transactions(self, lease: leasehold.Lease, think: float) -> None:
        with self._database.transaction():
            n = self._read(lease)
        self._pause(think)
        with self._database.transaction():
            if self._job.check == "guard":
                guard(self._database.driver, lease)
            self._write(lease, n + 1)

    def _read(self, lease: leasehold.Lease) -> int:
        if self._job.check == "guard":
            guard(self._database.driver, lease)
        return self._database.number("SELECT n FROM counter")

    def _write(self, lease: leasehold.Lease, n: int) -> None:
        if self._job.check == "guard":
            self._database.run("UPDATE counter SET n = %s", [n])
            return
        fenced = "UPDATE counter SET n = %s, fence = %s WHERE fence <= %s"
        if self._database.run(fenced, [n, lease.fence, lease.fence]) == 0:
            raise TooLate

    def _pause(self, think: float) -> None:
        """Between the read and the write: think for a moment, or be stopped as a whole for as long as it takes."""
        if think:
            time.sleep(think)
        elif self._random.random() < self._job.pause_rate:
            self._tally.pauses += 1
            self._say(f"stop {self._job.number}")
            os.kill(os.getpid(), signal.SIGSTOP)

    def _say(self, line: str) -> None:
        os.write(self._job.pipe, f"{line}\n".encode())  # one write, so that lines never mix


def main() -> None:
    """Read the job from the command line and work."""
    job = Job(**json.loads(sys.argv[1]))
    if job.driver == "asyncpg":
        from verification.lab.counter_worker_asyncpg import AsyncpgWorker  # noqa: PLC0415 - only where it is used

        AsyncpgWorker(job).work()
    else:
        Worker(job).work()


if __name__ == "__main__":
    main()
