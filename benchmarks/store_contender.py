"""A process that holds, waits or works, for the comparison of stores and for lingering.

`python -m benchmarks.store_contender TASK URL NAME TTL [LINGER]` prints "ready", then an answer for each line that
it reads. Instants are of the monotonic clock, which all processes of a host share.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from contextlib import suppress

import leasehold
from benchmarks.contender import say

__all__ = ["LONGEST"]

LONGEST = 60.0  # how long a holder or a waiter is watched at the most


def hold(client: leasehold.Client, name: str) -> None:
    """Hold the lock until it is lost: answers when it was granted, and when its loss was known."""
    say("ready")
    for _ in sys.stdin:
        lease = client.lock(name).acquire(timeout=LONGEST)
        say(time.monotonic())
        lease.lost.wait(LONGEST)
        say(time.monotonic())
        with suppress(leasehold.LeaseholdError):
            lease.release()


def wait(client: leasehold.Client, name: str) -> None:
    """Wait for the lock and give it back: answers when it was granted."""
    with client.lock(name + ":warm-up").hold():
        say("ready")
    for _ in sys.stdin:
        with client.lock(name).hold(timeout=LONGEST):
            granted = time.monotonic()
        say(granted)


def work(client: leasehold.Client, name: str) -> None:
    """Take and give the lock without a pause, until a line comes."""
    lock = client.lock(name, linger=sys.argv[5] or None)
    enough = threading.Event()

    def turns() -> None:
        while not enough.is_set():
            lock.acquire().release()

    worker = threading.Thread(target=turns)
    worker.start()
    say("ready")
    sys.stdin.readline()
    enough.set()
    worker.join()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # a holder that is cut off has much to report
    task, url, lock_name, ttl = sys.argv[1:5]
    with suppress(BrokenPipeError), leasehold.connect(url, ttl=float(ttl)) as opened:
        {"hold": hold, "wait": wait, "work": work}[task](opened, lock_name)
