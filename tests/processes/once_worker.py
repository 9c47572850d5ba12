"""A process that makes attempts at a `once` job and says what became of them; started by the tests beside it.

Words: URL, number of processes, skew of the clock in seconds, options as JSON, what to do in the block.
All processes are forked and wait for a line on stdin, then attempt together.
"""

from __future__ import annotations

import json
import os
import sys
import time

import leasehold
import leasehold._backends.sqlite.backend
import leasehold._blocking.once
import leasehold.testing.shared  # all is loaded before the fork, so that the attempts really meet


def attempt(url: str, options: dict[str, object], work: str) -> str:
    with leasehold.connect(url, ttl=1) as client:
        try:
            with client.once("job", **options).attempt() as run:  # type: ignore[arg-type]
                if not run:
                    return "skipped"
                if work == "stay":
                    say("running")
                    sys.stdin.readline()
                elif work == "fail":
                    raise ValueError("the job failed")
        except ValueError:
            return "failed"
        except leasehold.LeaseLost:
            return "lost"
    return "ran"


def outcome(url: str, options: dict[str, object], work: str) -> str:
    """What became of an attempt; on a busy machine fifty processes may keep one file locked for longer than a call."""
    while True:
        try:
            return attempt(url, options, work)
        except leasehold.BackendUnavailable:
            continue
        except Exception as error:
            return type(error).__name__


def say(word: str) -> None:
    os.write(1, f"{word} {os.getpid()}\n".encode())


def main() -> None:
    url, number, skew, options, work = sys.argv[1:]
    if float(skew):
        true_time = time.time
        time.time = lambda: true_time() + float(skew)
    gate, open_gate = os.pipe()
    for _ in range(int(number)):
        if os.fork() == 0:
            os.close(open_gate)
            os.read(gate, 1)
            say(outcome(url, json.loads(options), work))
            os._exit(0)
    say("ready")
    sys.stdin.readline()
    os.close(gate)
    os.close(open_gate)
    for _ in range(int(number)):
        os.wait()


if __name__ == "__main__":
    main()
