"""A worker is told to end, and its successor has to wait until the lease of the dead one runs out.

    python -m examples.leave_in_order                       # on local:, without a server
    python -m examples.leave_in_order redis://localhost     # or on any other store

At every roll-out Kubernetes and systemd send SIGTERM. A process that just dies of it leaves its locks to their ttl.
`client.release_on_signals()` gives back what the process holds, and passes the signal on: the successor goes on at
once.

`worker.py` is such a worker, `worker.service` its unit and `deployment.yaml` its manifest.
"""

from __future__ import annotations

import signal
import time
from contextlib import nullcontext

from examples.stage import Stage, play

TTL = 4


def work(stage: Stage, in_order: bool) -> None:  # noqa: FBT001 - a part has plain arguments
    """Hold the lock until a signal comes."""
    client = stage.connect(label="worker")
    with client, client.release_on_signals() if in_order else nullcontext(), client.lock("mailbox", ttl=TTL).hold():
        stage.ledger("steps").write("the worker holds the lock")
        time.sleep(3600)


def follow(stage: Stage) -> None:
    """The successor, which waits for the lock."""
    with stage.connect(label="successor") as client:
        lock = client.lock("mailbox", ttl=TTL)
        assert lock.try_acquire() is None
        stage.ledger("steps").write("the successor waits")
        with lock.hold():
            stage.ledger("steps").write("the successor holds the lock")


def replace(stage: Stage, *, in_order: bool) -> float:
    """Roll out: how many seconds nobody works."""
    worker = stage.start(work, in_order)
    wait_for(stage, "the worker holds the lock")
    successor = stage.start(follow)
    wait_for(stage, "the successor waits")
    begin = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    wait_for(stage, "the successor holds the lock")
    seconds = time.monotonic() - begin
    successor.wait()
    stage.ledger("steps").take()
    return seconds


def wait_for(stage: Stage, step: str) -> None:
    """Until the step was taken."""
    while step not in stage.ledger("steps").read():
        time.sleep(0.01)


def story(stage: Stage) -> int:
    """The same roll-out twice."""
    killed = replace(stage, in_order=False)
    stage.result("without leaving", round(killed * 10), 0, f"nobody worked for {killed:.1f} s of a ttl of {TTL} s")
    handed_over = replace(stage, in_order=True)
    text = f"nobody worked for {handed_over:.2f} s"
    stage.result("leaving in order", round(handed_over * 10), 0, text, good=handed_over < killed)
    return stage.verdict(broken=killed > TTL / 3, cured=handed_over < killed)


if __name__ == "__main__":
    raise SystemExit(play(story, __doc__))
