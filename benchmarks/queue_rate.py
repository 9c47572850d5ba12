"""How many jobs a second `leasehold.sql.Queue` claims and completes: `python -m benchmarks.queue_rate`.

Each worker is a process with one connection that works; the handler does nothing. So this is what the queue itself
costs: two transactions a job, and one with `in_transaction` more than the work has anyway.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sqlite3
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leasehold.sql import Queue, list_queues
from verification.lab.mariadb import MariadbServer
from verification.lab.postgres import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUE = Queue("rate")


def nothing(*_: object) -> None:
    """A handler."""


def work(connect: Callable[[], Any], in_transaction: bool) -> None:  # noqa: FBT001 - an argument of a process
    """One worker, until there is nothing left."""
    QUEUE.run(nothing, connect, in_transaction=in_transaction, until_idle=True)


def measure(connect: Callable[[], Any], workers: int, jobs: int, *, in_transaction: bool) -> float:
    """Jobs a second."""
    with closing(connect()) as connection:
        QUEUE.create_tables(connection)
        connection.commit()
        for number in range(jobs):
            QUEUE.enqueue(connection, number)
        connection.commit()
        context = multiprocessing.get_context("fork")
        processes = [context.Process(target=work, args=(connect, in_transaction)) for _ in range(workers)]
        began = time.perf_counter()
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        took = time.perf_counter() - began
        (counts,) = list_queues(connection)
        assert counts.done == jobs, counts
        while QUEUE.purge(connection, older_than=0):
            connection.commit()
        connection.commit()
    return jobs / took


def databases(stack: ExitStack) -> dict[str, Callable[[], Any]]:
    """How to connect to each; servers keep their files in memory, where there is room."""
    postgres = stack.enter_context(PostgresServer())
    mariadb = stack.enter_context(MariadbServer())
    mariadb.make_database("rate")
    base = "/dev/shm" if Path("/dev/shm").is_dir() else None
    folder = stack.enter_context(tempfile.TemporaryDirectory(dir=base))
    return {
        "PostgreSQL": lambda: postgres_connection(postgres.url()),
        "MariaDB": lambda: mariadb.connect("rate", autocommit=False),
        "SQLite": lambda: sqlite_connection(f"{folder}/rate.db"),
    }


def postgres_connection(url: str) -> Any:
    """Of psycopg."""
    import psycopg  # noqa: PLC0415 - after the fork

    return psycopg.connect(url)


def sqlite_connection(path: str) -> sqlite3.Connection:
    """With a log that lets readers go on, as most have it."""
    connection = sqlite3.connect(path, timeout=30)
    connection.execute("PRAGMA journal_mode=WAL")
    return connection


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4])
    arguments = parser.parse_args()
    with ExitStack() as stack:
        for name, connect in databases(stack).items():
            for in_transaction in (False, True):
                rates = [
                    f"{workers} workers: {measure(connect, workers, arguments.jobs, in_transaction=in_transaction):.0f}"
                    for workers in arguments.workers
                ]
                kind = "in transaction" if in_transaction else "outside"
                print(f"{name:<11}{kind:<16}{', '.join(rates)} jobs/s")


if __name__ == "__main__":
    main()
