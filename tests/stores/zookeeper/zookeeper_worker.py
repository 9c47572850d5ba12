"""A process that contends for a lock while servers fail: `python zookeeper_worker.py URL NAME TTL HOLD`.

It acquires the lock again and again, believes in it for HOLD seconds or until it is lost, and writes one line of JSON
for each grant: the fence, the first and the last instant at which `check` succeeded, and how the lease ended. Instants
are of the clock that all processes of this host share. It ends when its input does.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import leasehold


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wait_for_the_end(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


def main(url: str, name: str, ttl: str, hold: str) -> None:
    over = threading.Event()
    threading.Thread(target=wait_for_the_end, args=(over,), daemon=True).start()
    with leasehold.connect(url, ttl=float(ttl)) as client:
        while not over.is_set():
            try:
                lease = client.lock(name).acquire(timeout=1)
            except (leasehold.AcquireTimeout, leasehold.BackendError):
                continue
            believe(lease, float(hold))


def believe(lease: leasehold.Lease, hold: float) -> None:
    end = "released"
    first = last = 0.0
    started = now()
    while now() < started + hold:
        before = now()
        try:
            lease.check()
        except leasehold.LeaseLost as lost:
            end = f"lost: {lost.reason}"
            break
        first, last = first or before, now()
        time.sleep(0.005)
    try:
        lease.release()
    except leasehold.BackendError as error:
        end += f"; {type(error).__name__} on release"
    line = {"fence": lease.fence, "first": first, "last": last, "end": end}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
