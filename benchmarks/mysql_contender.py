"""A process that measures on behalf of a MariaDB scenario: `python -m benchmarks.mysql_contender TASK KIND URL …`.

It prints "ready", waits for a line, does its task, and prints what it saw as JSON.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from benchmarks.contender import contend, say
from benchmarks.mysql_locks import MARIADB, Connections

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.library import Lock

__all__ = ["NAME"]

NAME = "bench"


def contend_in_threads(locks: Sequence[Lock], held: float) -> None:
    """Threads that take and give one name between the two instants of the order; the answer has a part for each."""
    for lock in locks:
        lock.take()  # whatever is set up with the first use
        lock.give()
    say("ready")
    start, end = map(float, sys.stdin.readline().split())
    answers: list[Any] = [None] * len(locks)

    def work(number: int) -> None:
        time.sleep(max(0.0, start - time.monotonic()))
        answers[number] = contend(locks[number], held, end)

    for thread in _started(work, len(locks)):
        thread.join()
    say(answers)


def wait_in_threads(locks: Sequence[Lock]) -> None:
    """Threads that all wait for one name, and give it back at once when they have it; the answer comes after all."""
    say("ready")
    sys.stdin.readline()

    def work(number: int) -> None:
        locks[number].take()
        locks[number].give()

    for thread in _started(work, len(locks)):
        thread.join()
    say("over")


def wait_on_order(lock: Lock) -> None:
    """For every line: take the lock, say when it was ours, give it back."""
    say("ready")
    for _ in sys.stdin:
        lock.take()
        granted = time.monotonic()
        lock.give()
        say(granted)


def _started(work: Callable[[int], None], count: int) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads


def main() -> None:
    """Do the task of the command line."""
    task, kind, url, *more = sys.argv[1:]
    connections = Connections(url)
    locks = [MARIADB.make(kind, connections, NAME) for _ in range(int(more[0]))]
    if task == "contend":
        contend_in_threads(locks, float(more[1]))
    elif task == "wait":
        wait_in_threads(locks)
    else:
        wait_on_order(locks[0])
    for lock in locks:
        lock.close()
    connections.close()


if __name__ == "__main__":
    main()
