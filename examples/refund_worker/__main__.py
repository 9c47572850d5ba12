"""Three workers find the same list of refunds, and each customer gets the money three times.

    python -m examples.refund_worker                                # on local:, without a server
    python -m examples.refund_worker postgresql://localhost/test    # refunds in this database too, in tables example_*
    python -m examples.refund_worker redis://localhost              # any other store: refunds in a file of SQLite

Two ways hold. With a **lock** for each refund a worker looks again after it has the lock, and pays what is still
open. With a **queue** in the database (`leasehold.sql.Queue`) no lock is needed: a job is claimed by one worker,
comes back if that one is killed, and is tried again with growing pauses while the bank is away. Here it is away at
every first try, and one worker is killed. `shop.py` is the queue as a small program of its own, with the order and
its refund in one transaction.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import leasehold
from examples.stage import Stage, execute, play, transaction
from leasehold.sql import Queue, guard

if TYPE_CHECKING:
    from leasehold.sql import Job

REFUNDS = range(1, 11)
WORKERS = 3

quick = leasehold.Backoff(("100ms",), factor=2, longest="1s", jitter="full")
refunds = Queue("example refunds", visibility="2s", backoff=quick)


def pay(stage: Stage, number: int) -> None:
    """The bank needs a moment, and money that was sent is gone."""
    time.sleep(0.05)
    stage.ledger("payments").write(number)


def is_open(database: Any, number: int) -> bool:
    """Whether this refund has not been paid yet."""
    return bool(execute(database, "SELECT 1 FROM example_refund WHERE number = ? AND NOT paid", number).fetchone())


def mark_paid(database: Any, number: int) -> None:
    """No worker shall pay it again."""
    execute(database, "UPDATE example_refund SET paid = TRUE WHERE number = ?", number)


# --- three workers


def work(stage: Stage) -> None:
    """It does look before it pays."""
    with closing(stage.database()) as database:
        for number in REFUNDS:
            with transaction(database):
                to_pay = is_open(database, number)
            if to_pay:
                pay(stage, number)
                with transaction(database):
                    mark_paid(database, number)


def work_under_locks(stage: Stage) -> None:
    """It looks when it has the lock of the refund."""
    with stage.connect() as client, closing(stage.database()) as database:
        for number in REFUNDS:
            with client.lock(f"refund:{number}").hold(timeout=60) as lease, transaction(database):
                guard(database, lease)  # a worker that was paused for too long is refused before it pays
                if is_open(database, number):
                    pay(stage, number)
                    mark_paid(database, number)


def work_from_a_queue(stage: Stage) -> None:
    """It takes what the queue gives."""

    def refund(tx: Any, job: Job) -> None:
        number = job.payload["refund"]
        if job.attempt == 1:
            raise ConnectionError("the bank does not answer")
        if number == REFUNDS[0] and job.attempt == 2:
            stage.say("a worker is killed")
            os.kill(os.getpid(), signal.SIGKILL)
        pay(stage, number)
        mark_paid(tx, number)  # committed together with the completion of the job

    with closing(stage.database()) as database:
        while any(is_open(database, number) for number in REFUNDS):
            database.rollback()
            refunds.run(refund, stage.database, in_transaction=True, until_idle=True)
            time.sleep(0.1)


# --- the story


def cancel_orders(stage: Stage) -> None:
    """Ten refunds to pay, and a job for each in the same transaction."""
    with closing(stage.database()) as database, transaction(database):
        execute(database, "DROP TABLE IF EXISTS example_refund")
        execute(database, "CREATE TABLE example_refund (number INTEGER PRIMARY KEY, paid BOOLEAN NOT NULL)")
        for number in REFUNDS:
            execute(database, "INSERT INTO example_refund VALUES (?, FALSE)", number)
            refunds.enqueue(database, {"refund": number}, key=f"{stage.namespace}-{number}")


def story(stage: Stage) -> int:
    """Three ways to work."""
    counts = []
    for label, way in (
        ("without leasehold", work),
        ("lock per refund", work_under_locks),
        ("queue", work_from_a_queue),
    ):
        cancel_orders(stage)
        stage.together(way, [()] * WORKERS)
        counts.append(len(stage.ledger("payments").take()))
        stage.result(label, counts[-1], len(REFUNDS), f"{counts[-1]} payments for {len(REFUNDS)} refunds")
    wanted = len(REFUNDS)
    return stage.verdict(broken=counts[0] > wanted, cured=counts[1:] == [wanted, wanted])


if __name__ == "__main__":
    raise SystemExit(play(story, __doc__))
