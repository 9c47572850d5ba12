"""The other process of the SQLite tests: `python sqlite_worker.py TASK URL ARGUMENTS…`; prints a line per event."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import leasehold
from leasehold.sql import guard

if TYPE_CHECKING:
    from collections.abc import Callable

__all__: list[str] = []


def say(*words: object) -> None:
    """One line, at once."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def wait_for_a_word() -> str:
    """The next line of the parent's."""
    return sys.stdin.readline().strip()


def count(url: str, path: str, times: str) -> None:
    """Add one to a number in a plain file, many times, each under the lock."""
    client = leasehold.connect(url)
    lock, counter = client.lock("counter", ttl=10), Path(path)
    say("ready")
    wait_for_a_word()
    for _ in range(int(times)):
        with lock.hold(timeout=100) as lease:
            counter.write_text(str(int(counter.read_text()) + 1))
            say("fence", lease.fence)
    client.close()


def hold(url: str, name: str, ttl: str) -> None:
    """Hold a lock until told otherwise."""
    client = leasehold.connect(url)
    lease = client.lock(name, ttl=float(ttl)).acquire(timeout=100)
    say("held", lease.fence)
    if wait_for_a_word() == "release":
        say("released", lease.release())
    client.close()


def write(url: str, name: str, ttl: str, database: str) -> None:
    """Hold a lock, and write into a guarded database whenever told to."""
    client = leasehold.connect(url)
    lease = client.lock(name, ttl=float(ttl)).acquire(timeout=100)
    say("held", lease.fence)
    connection = sqlite3.connect(database, timeout=30)
    while wait_for_a_word():
        try:
            with connection:
                guard(connection, lease)
                connection.execute("INSERT INTO written VALUES (?, ?)", (os.getpid(), lease.fence))
        except leasehold.StaleFence as stale:
            say("stale", stale.fence, stale.highest, lease.lost.is_set())
        else:
            say("written")


def loop(url: str, seed: str) -> None:
    """Use locks of all kinds as fast as possible, for ever; print every fence of the name `loop`."""
    client = leasehold.connect(url)
    locks = [
        client.lock("loop", ttl=0.2),
        client.rwlock("shared", ttl=0.2).read,
        client.rwlock("shared", ttl=0.2).write,
        client.semaphore("permits", 2, ttl=0.2),
        client.lock("cooling", ttl=0.2, min_hold=0.001),
    ]
    turn = int(seed)
    while True:
        turn += 1
        try:
            with locks[turn % len(locks)].hold(timeout=0.05) as lease:
                if turn % len(locks) == 0:
                    say(lease.fence)
        except (leasehold.AcquireTimeout, leasehold.LeaseLost):
            continue
        except leasehold.BackendUnavailable as error:  # a writer slept, or its disk did, for more than a second
            if not isinstance(error.__cause__, sqlite3.OperationalError):
                raise


def queue(url: str, name: str) -> None:
    """Stand in line and print when the turn has come."""
    client = leasehold.connect(url)
    with client.lock(name, ttl=10).hold(timeout=100) as lease:
        say("turn", lease.fence, time.monotonic())
    client.close()


if __name__ == "__main__":
    tasks: dict[str, Callable[..., None]] = {"count": count, "hold": hold, "write": write, "loop": loop, "queue": queue}
    tasks[sys.argv[1]](*sys.argv[2:])
