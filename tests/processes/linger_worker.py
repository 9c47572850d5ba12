"""A process with a lock that lingers; started by `test_linger_processes.py`. Words: story, URL, namespace."""

from __future__ import annotations

import os
import sys
import time
import warnings

import leasehold


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def main(story: str, url: str, namespace: str) -> None:
    warnings.simplefilter("error", ResourceWarning)
    client = leasehold.connect(url, namespace=namespace, ttl=600)
    lock = client.lock("x", linger="1s")
    if story == "signal":
        client.release_on_signals()
    with lock.hold() as lease:
        pass
    if story == "fork":
        child = os.fork()
        if child == 0:
            taken = lock.acquire(timeout="30s")  # from the store, after its parent's stay
            say("child", taken.fence > lease.fence + 1)
            taken.release()
            client.close()
            os._exit(0)
        os.waitpid(child, 0)
    say("parked", lease.fence)
    while story == "signal":  # it lingers whenever the signal comes
        with lock.hold():
            time.sleep(0.001)
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
