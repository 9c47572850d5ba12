"""A process that takes and gives back one lock again and again, until its input ends; started by the tests beside it.

Words: URL, name. It prints a line when it begins, and one at its end: how often it had the lock.
"""

from __future__ import annotations

import os
import select
import sys

import leasehold


def main() -> None:
    url, name = sys.argv[1:]
    count = 0
    with leasehold.connect(url, ttl=30) as client:
        os.write(1, b"ready\n")
        while not select.select([sys.stdin], [], [], 0)[0]:
            try:
                with client.lock(name).hold(timeout=0.2):
                    count += 1
            except leasehold.AcquireTimeout:
                continue
            except leasehold.BackendError:
                continue  # on a busy machine an answer may take longer than a call waits for it
    os.write(1, b"%d\n" % count)


if __name__ == "__main__":
    main()
