"""Jobs of a queue in the database itself: enqueued with a number, claimed, done in the transaction of the work.

A worker that is stopped or killed in the middle leaves its job to the next one; a late completion is refused. The
database is the store under test, so that its faults hit the jobs.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from leasehold import StaleFence
from leasehold.sql import Queue, is_retryable
from verification.lab import counter_databases
from verification.lab.history import Kind

if TYPE_CHECKING:
    from verification.lab.counter_databases import CounterDatabase
    from verification.lab.workloads import Client

__all__ = ["make_tables", "run"]

WORK = (0.0, 0.03)
BREATH = 0.05
BATCH = 3


def _queue(ttl: float) -> Queue:
    return Queue("lab", max_attempts=1000, visibility=ttl)


def make_tables(url: str) -> None:
    """The queue's own, and one for what was done."""
    with closing(counter_databases.connect(url)) as database, database.transaction():
        _queue(1.0).create_tables(database.driver)
        database.run("CREATE TABLE work (job bigint NOT NULL)")


def run(client: Client) -> None:
    """Enqueue a few, work off a few; after an error with a new connection."""
    number = client.pen.process * 1_000_000
    while not client.stop.is_set():
        try:
            with closing(counter_databases.connect(client.order.data)) as database:
                while not client.stop.is_set():
                    number = _enqueue(client, database, number)
                    _work(client, database)
        except Exception as error:
            client.pen.note(Kind.FAILED, detail=f"{type(error).__name__}: {error}")
            client.stop.wait(BREATH)


def _enqueue(client: Client, database: CounterDatabase, number: int) -> int:
    """A repeated one has the same key, and does nothing."""
    client.pen.note(Kind.ACQUIRE, call=number)
    with database.transaction():
        for place in range(BATCH):
            _queue(client.order.ttl).enqueue(database.driver, number + place, key=str(number + place))
    return number + BATCH


def _work(client: Client, database: CounterDatabase) -> None:
    queue = _queue(client.order.ttl)
    with database.transaction():
        jobs = queue.claim(database.driver, limit=BATCH)
    for job in jobs:
        client.pen.note(Kind.RAN, detail=str(job.payload))
        client.stop.wait(client.random.uniform(*WORK))
        if client.random.random() < client.order.stop_rate:
            client.stop_itself()
        try:
            with database.transaction():
                database.run(f"INSERT INTO work VALUES ({job.payload})")
                queue.complete(database.driver, job)
        except StaleFence:
            database.rollback()
            client.pen.note(Kind.REFUSED, detail=str(job.payload))
        except Exception as error:
            database.rollback()
            if not is_retryable(error):
                raise
        else:
            client.pen.note(Kind.DONE, detail=str(job.payload))
