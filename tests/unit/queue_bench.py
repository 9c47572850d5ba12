"""A worker of a queue on a file of SQLite, whose clock is planned and whose connections note what becomes of them."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from leasehold import Backoff
from leasehold.sql import Queue
from leasehold.sql.queue.transactions import open_source
from leasehold.sql.queue.worker import Plan, Worker
from tests.unit.planned_waits import PlannedWaits

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

__all__ = ["POLL", "QUEUE", "Bench", "Face", "face_of"]

QUEUE = Queue("mails", visibility="40s", max_attempts=2, backoff=Backoff(("1h",), longest="1h", jitter="none"))
POLL = Backoff(("1s", "2s"), factor=2, longest="8s", jitter="none")


class Noted(sqlite3.Connection):
    """Notes what becomes of it."""

    notes: list[str]

    def commit(self) -> None:
        self.notes.append("commit")
        super().commit()

    def rollback(self) -> None:
        self.notes.append("rollback")
        super().rollback()

    def close(self) -> None:
        self.notes.append("close")
        super().close()


class Face:
    """One thread on a planned clock; what is spawned is noted, and run by the test."""

    def __init__(self, path: Path, handler: Callable[..., object]) -> None:
        self.runtime = PlannedWaits()
        self.notes: list[str] = []
        self.spawned: list[str] = []
        self.failures: list[Exception] = []  # of the next transactions
        self._path = path
        self._handler = handler

    def connect(self) -> sqlite3.Connection:
        if self.failures:
            raise self.failures.pop(0)
        self.notes.append("open")
        connection = sqlite3.connect(self._path / "queue.db", factory=Noted, timeout=0)
        connection.notes = self.notes
        return connection

    def transactions(self) -> Any:
        return open_source(self.connect, is_async=False)

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        self.spawned.append(name)
        coroutine.close()

    async def handle(self, *arguments: object) -> None:
        self._handler(*arguments)


class Bench:
    """A worker whose parts a test calls, and a connection of the test's own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = sqlite3.connect(path / "queue.db", isolation_level=None, timeout=0)
        QUEUE.create_tables(self.file)

    def worker(self, handler: Callable[..., object] = lambda *_: None, **words: Any) -> Worker:
        plan: dict[str, Any] = {"concurrency": 1, "in_transaction": False, "until_idle": True, "poll": POLL, "grace": 9}
        return Worker(Plan(QUEUE, handler, **{**plan, **words}), Face(self.path, handler))  # type: ignore[arg-type]

    def enqueue(self, *payloads: object) -> None:
        self.file.execute("BEGIN")
        for payload in payloads:
            QUEUE.enqueue(self.file, payload)
        self.file.execute("COMMIT")

    def claim(self) -> Any:
        self.file.execute("BEGIN")
        (job,) = QUEUE.claim(self.file)
        self.file.execute("COMMIT")
        return job

    def let_all_be_due(self) -> None:
        self.file.execute("UPDATE leasehold_queue SET due_at = 1 WHERE due_at IS NOT NULL")

    def states(self) -> list[tuple[str, int]]:
        return [(job.state, job.attempts) for job in QUEUE.jobs(self.file)]


def face_of(worker: Worker) -> Any:
    return worker.face
