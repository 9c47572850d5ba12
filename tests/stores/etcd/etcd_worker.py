"""A holder or waiter in a process of its own: `python etcd_worker.py URL NAME TTL`.

It says `waiting`, `held FENCE INSTANT` and perhaps `lost REASON INSTANT`; instants are of the clock that all
processes of a host share. It releases and ends with its input.
"""

from __future__ import annotations

import sys
import threading
import time

import leasehold


def say(*words: object) -> None:
    """One line."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main(url: str, name: str, ttl: str) -> None:
    """Hold until told otherwise."""
    client = leasehold.connect(url, ttl=float(ttl), namespace="faults")
    say("waiting")
    lease = client.lock(name).acquire()
    say("held", lease.fence, time.monotonic())
    threading.Thread(target=_tell_of_loss, args=(lease,), daemon=True).start()
    sys.stdin.read()
    try:
        say("released", lease.release())
    except leasehold.BackendError as error:
        say("unreleased", type(error).__name__)


def _tell_of_loss(lease: leasehold.Lease) -> None:
    if lease.lost.wait():
        assert lease.loss is not None
        say("lost", lease.loss.reason.replace(" ", "-"), time.monotonic())


if __name__ == "__main__":
    main(*sys.argv[1:])
