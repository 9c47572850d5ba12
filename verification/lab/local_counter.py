"""A guarded counter under the local queue: processes of many threads take one lock, and are stopped at random.

    python -m verification.lab.local_counter --seconds 600
    python -m verification.lab.local_counter --url redis://127.0.0.1:6379 --processes 4 --threads 50

Inside a process the lock is passed on from thread to thread, each under a fence of its own. A thread reads the counter,
waits a little, and writes one more under its fence; the counter refuses a fence that is lower than the last. A process
that is stopped in the middle loses its lease, another one takes over, and the first is woken up and writes. Every write
that was acknowledged is one more in the counter at the end, or it was lost. The same register without a check on
writes is the control: if it loses nothing, nothing dangerous happened.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import leasehold
from verification.lab.redis import RedisServer

__all__ = ["Outcome", "count"]

TTL = 0.5


@dataclass(slots=True)
class Outcome:
    """What came out of a run."""

    writes: int  # that were acknowledged
    lost: int  # of these, in the register with a guard
    unguarded_losses: int
    refused: int  # writes that the guard refused
    passed_on: int  # leases whose fence is the next of one of the same process
    stops: int
    twice: int  # fences that two threads had


def count(url: str, folder: Path, *, processes: int, threads: int, seconds: float, seed: int = 0) -> Outcome:
    """Run it, and judge it."""
    path = folder / "counter.db"
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode = wal")
        database.execute("CREATE TABLE counter (guarded INTEGER, fence INTEGER, plain INTEGER)")
        database.execute("INSERT INTO counter VALUES (0, 0, 0)")
    command = [sys.executable, "-m", "verification.lab.local_counter", "--worker", str(path), "--url", url]
    command += ["--threads", str(threads), "--seconds", str(seconds)]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(processes)]
    try:
        stops = _stop_at_random(workers, time.monotonic() + seconds, random.Random(seed))
        reports = [json.loads(worker.communicate(timeout=seconds + 120)[0]) for worker in workers]
    finally:
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGCONT)
            worker.kill()
    guarded, _, plain = sqlite3.connect(path).execute("SELECT * FROM counter").fetchone()
    writes = sum(report["writes"] for report in reports)
    fences = [fence for report in reports for fence in report["fences"]]
    passed_on = sum(len({fence + 1 for fence in report["fences"]} & set(report["fences"])) for report in reports)
    refused = sum(report["refused"] for report in reports)
    plainly = sum(report["plain"] for report in reports)
    return Outcome(writes, writes - guarded, plainly - plain, refused, passed_on, stops, len(fences) - len(set(fences)))


def _stop_at_random(workers: list[subprocess.Popen[bytes]], end: float, chance: random.Random) -> int:
    stops = 0
    while time.monotonic() < end:
        time.sleep(chance.random() * TTL / 2)
        worker = chance.choice(workers)
        os.kill(worker.pid, signal.SIGSTOP)
        time.sleep(chance.random() ** 2 * 2 * TTL)
        os.kill(worker.pid, signal.SIGCONT)
        stops += 1
    return stops


class _Worker:
    """The threads of one process."""

    def __init__(self, url: str, path: str, seconds: float) -> None:
        self._client = leasehold.connect(url, ttl=TTL)
        self._path = path
        self._end = time.monotonic() + seconds
        self._guard = threading.Lock()
        self.writes = self.plain = self.refused = 0
        self.fences: list[int] = []

    def work(self) -> None:
        """Take the lock and add one, again and again."""
        database = sqlite3.connect(self._path, timeout=60, isolation_level=None)
        lock = self._client.lock("counter")
        while time.monotonic() < self._end:
            with suppress(leasehold.LeaseLost, leasehold.BackendError), lock.hold(timeout=60) as lease:
                self._add(database, lease)
        database.close()

    def _add(self, database: sqlite3.Connection, lease: leasehold.Lease) -> None:
        """Reading under the fence comes first: from then on a lower one cannot write."""
        statement = "UPDATE counter SET fence = ? WHERE fence < ? RETURNING guarded, plain"
        found = database.execute(statement, (lease.fence, lease.fence)).fetchall()
        guarded, plain = found[0] if found else (0, 0)
        if random.random() < 0.1:
            time.sleep(random.random() * 0.01)
        written = database.execute(
            "UPDATE counter SET guarded = ? WHERE fence = ?", (guarded + 1, lease.fence)
        ).rowcount
        if found:
            database.execute("UPDATE counter SET plain = ?", (plain + 1,))
        with self._guard:
            self.fences.append(lease.fence)
            self.writes += written
            self.refused += 1 - written
            self.plain += bool(found)

    def close(self) -> None:
        self._client.close()


def _be_a_worker(options: argparse.Namespace) -> None:
    worker = _Worker(options.url, options.worker, options.seconds)
    threads = [threading.Thread(target=worker.work) for _ in range(options.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    worker.close()
    report = {"writes": worker.writes, "plain": worker.plain, "refused": worker.refused, "fences": worker.fences}
    print(json.dumps(report))


def main() -> int:
    """1: an acknowledged write was lost, or a fence was had twice. 2: nothing dangerous happened."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="the store; a Redis server of its own if there is none")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--threads", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        _be_a_worker(options)
        return 0
    server = nullcontext() if options.url else RedisServer()
    with server as own, tempfile.TemporaryDirectory() as folder:
        url = options.url or ("" if own is None else own.url)
        outcome = count(
            url,
            Path(folder),
            processes=options.processes,
            threads=options.threads,
            seconds=options.seconds,
            seed=options.seed,
        )
    print(outcome)
    if outcome.lost or outcome.twice:
        return 1
    return 0 if outcome.unguarded_losses and outcome.passed_on else 2


if __name__ == "__main__":
    sys.exit(main())
