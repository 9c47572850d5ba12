"""A process that measures on behalf of a scenario: `python -m benchmarks.contender TASK KIND PATH …`.

It prints "ready", waits for a line, does its task, and prints what it saw as JSON.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import leasehold
from benchmarks.harness import Sample, percentile
from benchmarks.locks import make

if TYPE_CHECKING:
    from benchmarks.locks import FileLock
    from benchmarks.redis_locks import RedisLock

__all__ = ["Contender", "contend", "contended", "say"]


class Contender:
    """The other end: starts such a process and talks to it."""

    def __init__(
        self, task: str, kind: str, where: object, *more: object, module: str = "benchmarks.contender"
    ) -> None:
        command = [sys.executable, "-m", module, task, kind, str(where), *map(str, more)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def started(self) -> Contender:
        """Wait until it is ready."""
        self.answer()
        return self

    def tell(self, order: object) -> None:
        """Send a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """The next line of the process."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a measuring process ended too early: {self._process.args!r}")
        return json.loads(line)

    def kill(self) -> None:
        """End it at once, in the middle of whatever it does."""
        self._process.kill()
        self._process.communicate()

    def close(self) -> None:
        """Wait for its end."""
        self._process.communicate()


def contended(answers: list[tuple[int, list[float]]], seconds: float) -> Sample:
    """What several contenders for one lock saw together: the grants of each, and how long each grant took."""
    everyone = [wait for _, waits in answers for wait in waits]
    counts = [grants for grants, _ in answers]
    facts = {
        "least/most": min(counts) / max(*counts, 1),
        "wait p50 ms": 1000 * percentile(everyone, 0.5),
        "p99 ms": 1000 * percentile(everyone, 0.99),
        "longest ms": 1000 * max(everyone),
    }
    return Sample(sum(counts) / seconds, facts)


def say(value: object) -> None:
    """Answer with one line."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def contend(lock: FileLock | RedisLock, held: float, until: float) -> tuple[int, list[float]]:
    """Take and give until the instant is reached: how many grants came in time, and all waits.

    The wait that was under way at the end counts as well, as long as it had lasted by then. A starved contender has no
    other, and would look as if it had never waited.
    """
    grants, waits = 0, []
    while (asked := time.monotonic()) < until:
        lock.take()
        granted = time.monotonic()
        waits.append(min(granted, until) - asked)
        grants += granted < until
        if held and granted < until:
            time.sleep(held)
        lock.give()
    return grants, waits


def contend_on_order(lock: FileLock, held: float) -> None:
    """Wait for the two instants, start and end, which all contenders get."""
    lock.take()  # whatever is set up with the first use
    lock.give()
    say("ready")
    start, end = map(float, sys.stdin.readline().split())
    time.sleep(max(0.0, start - time.monotonic()))
    say(contend(lock, held, end))


def wait_on_order(lock: FileLock) -> None:
    """For every line: take the lock, say when it was ours, give it back."""
    say("ready")
    for _ in sys.stdin:
        lock.take()
        granted = time.monotonic()
        lock.give()
        say(granted)


def wait_idly(path: Path, seconds: float) -> None:
    """Wait for a lock that stays held, and say what that cost: share of a core in percent, wake-ups a second."""
    say("ready")
    lock = leasehold.connect(f"sqlite:///{path}").lock("bench")
    for _ in sys.stdin:
        before = resource.getrusage(resource.RUSAGE_SELF)
        try:
            lock.acquire(timeout=seconds)
        except leasehold.AcquireTimeout:
            after = resource.getrusage(resource.RUSAGE_SELF)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            say([100 * cpu / seconds, (after.ru_nvcsw - before.ru_nvcsw) / seconds])


def main() -> None:
    """Do the task of the command line."""
    task, kind, path, *more = sys.argv[1:]
    if task == "idle":
        wait_idly(Path(path), float(more[0]))
        return
    lock = make(kind, Path(path))
    if task == "contend":
        contend_on_order(lock, float(more[0]))
    else:
        wait_on_order(lock)


if __name__ == "__main__":
    main()
