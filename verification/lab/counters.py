"""Lost updates, counted: workers add one to a counter in a database while some of them are paused in the middle.

    python -m verification.lab.counters --updates 100000 --level "repeatable read" --check guard
    python -m verification.lab.counters --database mariadb

A worker that is stopped loses its lease; the next one takes over and reads; then the first is woken up and writes. With
numbers that are checked on writes only, that loses acknowledged updates; with the guard it must not lose a single one.
Every update is one increment, so what is missing in the counter at the end was lost.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from leasehold.sql import guard_schema
from verification.lab import counter_databases
from verification.lab.counter_databases import LEVELS
from verification.lab.counter_worker import Job, Tally
from verification.lab.mariadb import MariadbServer
from verification.lab.postgres import PostgresServer

__all__ = ["LEVELS", "Outcome", "count_lost_updates"]

ROOT = Path(__file__).resolve().parents[2]
TTL = 0.3
THINK = 0.05
LONGEST_STOP = 3.0  # a stopped worker is woken up after this, also when no other took over
NO_NEWS = 120.0  # something is wrong if no worker writes a line for so long


@dataclass(slots=True)
class Outcome:
    """What came out of a run; `lost` is what the counter lacks."""

    updates: int
    level: str
    check: str
    counter: int = 0
    lost: int = 0
    seconds: float = 0.0
    total: Tally = field(default_factory=Tally)
    random_stops: int = 0


class Nemesis:
    """Stops workers at random, and wakes the stopped ones right after another has taken over."""

    def __init__(self, workers: dict[int, subprocess.Popen[bytes]], pipe: int, seed: int) -> None:
        self._workers = workers
        self._pipe = pipe
        self._random = random.Random(seed)
        self._wake: dict[int, float] = {}  # when to wake each worker
        self._next_stop = time.monotonic() + 0.5
        self.tallies: dict[int, Tally] = {}
        self.random_stops = 0

    def watch(self) -> None:
        """Until every worker is done."""
        buffer = b""
        last_line = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ)
            while len(self.tallies) < len(self._workers):
                if selector.select(0.002):
                    buffer += os.read(self._pipe, 65536)
                    last_line = time.monotonic()
                *lines, buffer = buffer.split(b"\n")
                for line in lines:
                    self._read(line.decode())
                self._act(time.monotonic())
                self._check(last_line)

    def _read(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "stop":
            self._wake[int(rest)] = time.monotonic() + LONGEST_STOP
        elif word == "over":
            soon = time.monotonic() + self._random.uniform(0, THINK * 0.8)
            self._wake = {number: min(when, soon) for number, when in self._wake.items()}
        else:
            self.tallies[len(self.tallies)] = Tally(**json.loads(rest))

    def _act(self, now: float) -> None:
        for number in [number for number, when in self._wake.items() if when <= now]:
            del self._wake[number]
            self._send(number, signal.SIGCONT)
        if now >= self._next_stop:
            self._next_stop = now + self._random.uniform(0.3, 1.2)
            number = self._random.choice(list(self._workers))
            if len(self._wake) < len(self._workers) // 2 and number not in self._wake:
                self._send(number, signal.SIGSTOP)
                self._wake[number] = now + LONGEST_STOP
                self.random_stops += 1

    def _send(self, number: int, what: signal.Signals) -> None:
        worker = self._workers[number]
        if worker.poll() is None:
            worker.send_signal(what)

    def _check(self, last_line: float) -> None:
        dead = [number for number, worker in self._workers.items() if worker.poll() not in (None, 0)]
        if dead:
            raise RuntimeError(f"workers {dead} ended with an error")
        if time.monotonic() - last_line > NO_NEWS:
            raise TimeoutError(f"no news for {NO_NEWS:.0f} s")


def count_lost_updates(
    url: str,
    *,
    updates: int,
    level: str,
    check: str,
    workers: int = 4,
    pause_rate: float = 0.005,
    seed: int = 1,
    driver: str = "psycopg",
) -> Outcome:
    """Run the experiment in an empty database or schema."""
    outcome = Outcome(updates, level, check)
    with closing(counter_databases.connect(url)) as database, database.transaction():
        database.run("CREATE TABLE counter (n bigint NOT NULL, fence bigint NOT NULL)")
        database.run("INSERT INTO counter VALUES (0, 0)")
    if url.startswith("mariadb:"):  # a worker that begins with BEGIN could not make it
        with closing(counter_databases.connect(url)) as database:
            database.run(guard_schema("mysql"))
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="leasehold-counters-") as folder:
        reading, writing = os.pipe()
        processes: dict[int, subprocess.Popen[bytes]] = {}
        try:
            for number in range(workers):
                share = updates // workers + (number < updates % workers)
                job = Job(
                    number, folder, url, level, check, share, pause_rate, TTL, THINK, seed * 1000 + number, writing
                )
                processes[number] = _start(replace(job, driver=driver))
            nemesis = Nemesis(processes, reading, seed)
            nemesis.watch()
        finally:
            _end(processes)
            os.close(reading)
            os.close(writing)
    _add_up(outcome, nemesis)
    outcome.seconds = round(time.monotonic() - started, 1)
    with closing(counter_databases.connect(url)) as database:
        outcome.counter = database.number("SELECT n FROM counter")
    outcome.lost = outcome.total.acknowledged - outcome.counter
    return outcome


def _start(job: Job) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-m", "verification.lab.counter_worker", json.dumps(asdict(job))]
    return subprocess.Popen(command, env=environment, pass_fds=[job.pipe])


def _end(processes: dict[int, subprocess.Popen[bytes]]) -> None:
    for process in processes.values():
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _add_up(outcome: Outcome, nemesis: Nemesis) -> None:
    for tally in nemesis.tallies.values():
        for name, value in asdict(tally).items():
            setattr(outcome.total, name, getattr(outcome.total, name) + value)
    outcome.random_stops = nemesis.random_stops


def _server(database: str) -> PostgresServer | MariadbServer:
    """Fast, at the price of what a power cut would take."""
    if database == "mariadb":
        return MariadbServer({"innodb-flush-log-at-trx-commit": "0"})
    return PostgresServer(settings={"synchronous_commit": "off"})


def main() -> int:
    """Run one experiment on a server of its own and print the outcome."""
    parser = argparse.ArgumentParser(description="count lost updates")
    parser.add_argument("--updates", type=int, default=100_000)
    parser.add_argument("--database", choices=sorted(LEVELS), default="postgresql")
    parser.add_argument(
        "--level", choices=[*sorted({each for some in LEVELS.values() for each in some}), "all"], default="all"
    )
    parser.add_argument("--check", choices=["guard", "write-only"], default="guard")
    parser.add_argument("--driver", choices=["psycopg", "asyncpg"], default="psycopg")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--pause-rate", type=float, default=0.005)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    lost = 0
    with _server(arguments.database) as server:
        assert isinstance(server, PostgresServer | MariadbServer)
        for number, level in enumerate(LEVELS[arguments.database] if arguments.level == "all" else [arguments.level]):
            outcome = count_lost_updates(
                server.make_database(f"counters_{number}"),
                updates=arguments.updates,
                level=level,
                check=arguments.check,
                workers=arguments.workers,
                pause_rate=arguments.pause_rate,
                seed=arguments.seed,
                driver=arguments.driver,
            )
            print(json.dumps(asdict(outcome)), flush=True)
            lost += outcome.lost
    return 1 if lost and arguments.check == "guard" else 0


if __name__ == "__main__":
    sys.exit(main())
