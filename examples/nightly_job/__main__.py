"""Three machines have the same crontab, and the job of 2 am runs three times.

    python -m examples.nightly_job                              # on local:, without a server
    python -m examples.nightly_job postgresql://localhost/test  # or on any other store with records

A lock alone does not help: the clocks of machines differ, the job is short, and the machine whose clock is late
finds the lock free again. `client.once` remembers that the slot of this night was run. With `on_conflict="standby"`
the other machines wait until it is done, and if the one that runs it vanishes, one of them takes over: here it is
killed half-way.

From a crontab, without any Python of your own:

    0 2 * * *  leasehold once report --cron '0 2 * * *' --on-conflict standby -- ./report.sh
"""

from __future__ import annotations

import os
import signal
import time

from examples.stage import Stage, play, times

CLOCKS = [0.0, 0.2, 0.4]  # how many seconds each machine is late
TONIGHT = "2026-11-18"


def report(stage: Stage) -> None:
    """The job: a tenth of a second of work, and the report is sent."""
    time.sleep(0.1)
    stage.ledger("reports").write("sent")


def start_it(stage: Stage, late: float) -> None:
    """Cron on one machine."""
    time.sleep(late)
    report(stage)


def start_under_a_lock(stage: Stage, late: float) -> None:
    """Only if no other machine is running it at this moment."""
    time.sleep(late)
    with stage.connect() as client:
        lease = client.lock("report").try_acquire()
        if lease is not None:
            with lease:
                report(stage)


def start_once(stage: Stage, late: float) -> None:
    """Only if no machine has run it tonight."""
    time.sleep(late)
    with stage.connect(label=f"machine {os.getpid()}") as client:
        job = client.once("report", slot=TONIGHT, on_conflict="standby", ttl=2)
        with job.attempt() as run:
            if run:
                if not stage.ledger("power cuts").read():
                    stage.ledger("power cuts").write("here")
                    stage.say("the machine that runs it is killed half-way; the others stand by")
                    os.kill(os.getpid(), signal.SIGKILL)
                stage.say("another machine takes over")
                report(stage)


def story(stage: Stage) -> int:
    """The same night three times."""
    sent = []
    for label, way in (
        ("without leasehold", start_it),
        ("a lock alone", start_under_a_lock),
        ("once", start_once),
    ):
        stage.together(way, [(late,) for late in CLOCKS])
        sent.append(len(stage.ledger("reports").take()))
        stage.result(label, sent[-1], 1, f"the report of one night was sent {times(sent[-1])}")
    return stage.verdict(broken=sent[0] > 1, cured=sent[-1] == 1)


if __name__ == "__main__":
    raise SystemExit(play(story, __doc__))
