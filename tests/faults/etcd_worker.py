"""A holder or waiter in a process of its own: `python etcd_worker.py URL NAME TTL`.

It prints `waiting`, `held FENCE INSTANT` and, if it comes to that, `lost REASON INSTANT`; instants are of the clock that
all processes of a host share. It releases and ends with its input.
"""

from __future__ import annotations

import sys
import threading
import time

import leasehold


def main(url: str, name: str, ttl: str) -> None:
    """Hold until told otherwise."""
    client = leasehold.connect(url, ttl=float(ttl), namespace="faults")
    print("waiting", flush=True)
    lease = client.lock(name).acquire()
    print("held", lease.fence, time.monotonic(), flush=True)
    threading.Thread(target=_tell_of_loss, args=(lease,), daemon=True).start()
    sys.stdin.read()
    try:
        print("released", lease.release(), flush=True)
    except leasehold.BackendError as error:
        print("unreleased", type(error).__name__, flush=True)


def _tell_of_loss(lease: leasehold.Lease) -> None:
    if lease.lost.wait():
        assert lease.loss is not None
        print("lost", lease.loss.reason.replace(" ", "-"), time.monotonic(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
