"""Three nodes run the scheduler for the case that one fails, and every job is scheduled three times.

    python -m examples.leader                       # on local:, without a server
    python -m examples.leader etcd://localhost      # or on any other store

One of them has to lead, and another must follow when it is gone. `election.run` is a candidate for as long as the
program runs, and calls the function in each term. A leader stops at its *renew deadline*, some time before the
lease can end, so two of them never believe that they lead. Here the first leader is killed in the middle of its
term.

For a program that is not in Python, on every machine:

    leasehold elect scheduler -- ./scheduler
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from examples.stage import Stage, play

if TYPE_CHECKING:
    import leasehold

NODES = ("north", "south", "west")
JOBS = 10
KILLED_AFTER = 4


class AllScheduled(Exception):
    """There is nothing left to lead."""


def schedule(stage: Stage, job: int) -> None:
    """Start one job."""
    time.sleep(0.03)
    stage.ledger("started").write(job)


def run_alone(stage: Stage, _node: str) -> None:
    """A node that does not know of the others."""
    for job in range(1, JOBS + 1):
        schedule(stage, job)


def run_elected(stage: Stage, node: str) -> None:
    """A node that schedules only while it leads."""

    def lead(term: leasehold.Term) -> None:
        begin = len(stage.ledger("started").read()) + 1
        stage.say(f"{node} leads with fence {term.fence}, from job {begin} on")
        for job in range(begin, JOBS + 1):
            term.check(need=0.1)  # LeaseLost unless this node surely leads for as long as it takes to schedule one
            schedule(stage, job)
            if job == KILLED_AFTER:
                stage.say(f"{node} is killed")
                os.kill(os.getpid(), signal.SIGKILL)
        raise AllScheduled

    with stage.connect(label=node) as client:
        election = client.election("scheduler", ttl=2, renew_deadline=1.4, retry=0.4)
        try:
            election.run(lead)
        except AllScheduled:
            return


def story(stage: Stage) -> int:
    """Three nodes, started together."""
    counts = []
    for label, way in (("without leasehold", run_alone), ("election", run_elected)):
        stage.together(way, [(node,) for node in NODES])
        counts.append(len(stage.ledger("started").take()))
        stage.result(label, counts[-1], JOBS, f"{counts[-1]} starts of {JOBS} jobs")
    return stage.verdict(broken=counts[0] > JOBS, cured=counts[1] == JOBS)


if __name__ == "__main__":
    raise SystemExit(play(story, __doc__))
