"""`Queue`: jobs in a table of the user's own database, enqueued in the user's transaction, claimed with a fence each.

Each database has a module of its own, which is loaded when it is used. `wires` knows the drivers, `queue_rows` has the
statements, `queue_worker` the loop that claims and works.
"""

from __future__ import annotations

import os
import socket
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from leasehold._backoff import Backoff
from leasehold._durations import seconds, ttl_seconds
from leasehold._runtimes.randomness import jitter
from leasehold._words import kind_of
from leasehold.errors import ConfigurationError
from leasehold.sql.calls import call, call_async
from leasehold.sql.idempotency.record import check_text
from leasehold.sql.queue.job import GiveUp, Rules, check_whole, error_text, write_payload
from leasehold.sql.queue.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from leasehold._durations import Duration
    from leasehold.sql.queue.job import Job, JobInfo, JobState, QueueCounts
    from leasehold.sql.queue.rows import Dialect
    from leasehold.sql.queue.worker import Worked
    from leasehold.sql.wires import Wire

__all__ = ["Queue", "find_job", "find_job_async", "list_queues", "list_queues_async", "queue_schema"]

DIALECTS = {
    "mysql": "leasehold.sql.queue.mysql",
    "postgresql": "leasehold.sql.queue.postgresql",
    "sqlite": "leasehold.sql.queue.sqlite",
}
BACKOFF = Backoff(("1s",), factor=3, longest="10m", jitter="full")
POLL = Backoff(("50ms", "100ms", "250ms"), factor=2, longest="1s", jitter="equal")
MOST = 1000


class Queue:
    """The jobs of one kind; make one per kind, and use it from any thread or task, in producers and in workers.

        with database.transaction():
            database.execute("UPDATE payments ...")
            queue.enqueue(database, {"payment": 17}, key="refund-17")

    `visibility`: how long a claim keeps a job from others; a worker that is alive extends it. `max_attempts`: after so
    many the job is dead, with its last error; None tries for ever. `backoff`: the pauses between attempts; by default
    full jitter over 1 s, 3 s, 9 s and so on up to 10 minutes. `keep`: how long workers leave completed jobs in the
    table; so long their keys are known. `max_payload`: the most bytes that a payload has as JSON. `schema`: where the
    table is in PostgreSQL, if each schema has data of its own.

    Every method takes a connection, cursor or session of psycopg, sqlite3, PyMySQL, SQLAlchemy or Django, and has a
    twin for asyncio, `enqueue_async` and so on. Times are those of the database's clock.
    """

    def __init__(
        self,
        name: str,
        *,
        visibility: Duration = "30s",
        max_attempts: int | None = 10,
        backoff: Backoff = BACKOFF,
        keep: Duration = "24h",
        max_payload: int = 65_536,
        schema: str | None = None,
    ) -> None:
        if not isinstance(backoff, Backoff):
            raise ConfigurationError(f"backoff must be a leasehold.Backoff, not {kind_of(backoff)}")
        if backoff.tries is not None:
            raise ConfigurationError("set how often a job is tried with max_attempts=, not with tries= of a Backoff")
        self.name: str = check_text(name, "the name of a queue")
        self.visibility: float = ttl_seconds(visibility, "visibility")
        self.keep: float = seconds(keep, "keep")
        self._backoff = backoff
        self._rules = Rules(
            queue=self.name,
            visibility=self.visibility,
            max_attempts=None if max_attempts is None else check_whole(max_attempts, "max_attempts", 1),
            max_payload=check_whole(max_payload, "max_payload", 1),
            schema=None if schema is None else check_text(schema, "schema"),
        )

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    # --- producers

    def enqueue(self, tx: Any, payload: object, *, key: str | None = None, delay: Duration = 0) -> int:
        """Write a job into the transaction that `tx` is in; its number.

        It exists when the transaction is committed, and not otherwise. `payload` is anything that JSON can write. With
        a `key`, enqueueing it again does nothing and gives the number of the first job, for as long as that one is in
        the table. `delay`: not before so long from now.

        Raises `KeyReused` for a known key with another payload; `RetryTransaction` when the whole transaction has to
        be run again; and `ConfigurationError` outside a transaction. It makes its table on first use, except in MySQL
        and MariaDB, where that would commit your transaction: see `create_tables`.
        """
        return call(tx, "enqueue", self._enqueue(payload, key, delay))

    async def enqueue_async(self, tx: Any, payload: object, *, key: str | None = None, delay: Duration = 0) -> int:
        """The same as `enqueue` for asyncio."""
        return await call_async(tx, "enqueue", self._enqueue(payload, key, delay))

    def _enqueue(self, payload: object, key: str | None, delay: Duration) -> Callable[[Wire], Coroutine[Any, Any, int]]:
        text = write_payload(payload, self._rules.max_payload)
        checked = None if key is None else check_text(key, "the key of a job")
        later = seconds(delay, "delay")
        return lambda wire: self._rows(wire).enqueue(text, checked, later)

    # --- workers

    def claim(self, tx: Any, *, limit: int = 1, visibility: Duration | None = None) -> list[Job]:
        """Take at most so many due jobs, the oldest first, until `visibility` is over; commit at once.

        Each gets a fence that is higher than those of all its earlier claims. A job that another transaction claims is
        skipped. One whose attempts are used up, because its workers vanished, is dead and not given out.
        """
        return call(tx, "claim", self._claim(limit, visibility))

    async def claim_async(self, tx: Any, *, limit: int = 1, visibility: Duration | None = None) -> list[Job]:
        """The same as `claim` for asyncio."""
        return await call_async(tx, "claim", self._claim(limit, visibility))

    def _claim(self, limit: int, visibility: Duration | None) -> Callable[[Wire], Coroutine[Any, Any, list[Job]]]:
        most = _limit(limit)
        until = self._visibility(visibility)
        return lambda wire: self._rows(wire).claim(most, until, _worker())

    def complete(self, tx: Any, job: Job) -> None:
        """The work of this claim is done; in the transaction of that work, both are committed or neither.

        Raises `StaleFence` if the job was claimed again since: roll back what this claim has written. A claim whose
        visibility is over and whose job was not claimed again is not late.
        """
        call(tx, "complete", lambda wire: self._rows(wire).complete(job))

    async def complete_async(self, tx: Any, job: Job) -> None:
        """The same as `complete` for asyncio."""
        await call_async(tx, "complete", lambda wire: self._rows(wire).complete(job))

    def fail(self, tx: Any, job: Job, error: BaseException | str, *, delay: Duration | None = None) -> float | None:
        """The work of this claim failed: try again after a pause, given here in seconds, or None if it is dead now.

        Of the error its type and sentence are kept, at most 1000 characters. `delay` replaces the pause of `backoff`;
        `GiveUp` as the error makes the job dead at once. Raises `StaleFence` like `complete`.
        """
        pause = self.pause_after(job, error, delay)
        call(tx, "fail", lambda wire: self._rows(wire).fail(job, error_text(error), pause))
        return pause

    async def fail_async(
        self, tx: Any, job: Job, error: BaseException | str, *, delay: Duration | None = None
    ) -> float | None:
        """The same as `fail` for asyncio."""
        pause = self.pause_after(job, error, delay)
        await call_async(tx, "fail", lambda wire: self._rows(wire).fail(job, error_text(error), pause))
        return pause

    def pause_after(self, job: Job, error: BaseException | str, delay: Duration | None = None) -> float | None:
        """How long the job rests after this attempt has failed; None: it is dead."""
        if isinstance(error, GiveUp) or self._rules.is_last(job.attempt):
            return None
        return self._backoff.delay(job.attempt - 1, jitter()) if delay is None else seconds(delay, "delay")

    def release(self, tx: Any, job: Job) -> None:
        """Give the job back at once, as if it had not been claimed; only its fence has grown."""
        call(tx, "release", lambda wire: self._rows(wire).release(job))

    async def release_async(self, tx: Any, job: Job) -> None:
        """The same as `release` for asyncio."""
        await call_async(tx, "release", lambda wire: self._rows(wire).release(job))

    def extend(self, tx: Any, job: Job, visibility: Duration | None = None) -> None:
        """Keep the job for so long from now on; raises `StaleFence` like `complete`."""
        until = self._visibility(visibility)
        call(tx, "extend", lambda wire: self._rows(wire).extend(job, until))

    async def extend_async(self, tx: Any, job: Job, visibility: Duration | None = None) -> None:
        """The same as `extend` for asyncio."""
        until = self._visibility(visibility)
        await call_async(tx, "extend", lambda wire: self._rows(wire).extend(job, until))

    def run(
        self,
        handler: Callable[..., object],
        database: Any,
        *,
        concurrency: int = 1,
        in_transaction: bool = False,
        until_idle: bool = False,
        poll: Backoff = POLL,
        grace: Duration = "30s",
        signals: Iterable[int] | None = None,
        stop: Callable[[Callable[[], None]], object] | None = None,
    ) -> Worked:
        """Work until a signal comes (SIGTERM, SIGINT; in the main thread), and end in order; what was done.

        `database` is an Engine of SQLAlchemy, the alias of a Django database, or a function without arguments that
        gives a connection (`lambda: psycopg.connect(url)`) or a transaction block (`Session.begin`, `pool.connection`).

        `handler(job)` runs outside any transaction, its claim is extended as long as it runs, and it may run again if
        this process dies: at least once. With `in_transaction` it is `handler(tx, job)`, and what it writes through
        `tx` is committed together with the completion of the job: exactly once, in that database. An error of the
        handler is kept with the job, which is tried again later; `GiveUp` says not to.

        `concurrency` threads claim one job at a time each, with a connection of its own; one connection more extends
        claims and removes completed jobs after `keep`. `until_idle` ends when no job is due. `poll`: the pauses while
        none is. `grace`: how long to wait for handlers after a signal; what they have not done by then is claimed
        by others later. A second signal is passed on. `stop` is called once with a function that ends the run.
        """
        from leasehold.sql.queue.worker import Plan, run_blocking  # noqa: PLC0415 - producers do not need it

        plan = Plan(self, handler, concurrency, in_transaction, until_idle, poll, seconds(grace, "grace"))
        return run_blocking(plan, database, signals, stop)

    async def run_async(
        self,
        handler: Callable[..., object],
        database: Any,
        *,
        concurrency: int = 1,
        in_transaction: bool = False,
        until_idle: bool = False,
        poll: Backoff = POLL,
        grace: Duration = "30s",
        signals: Iterable[int] | None = None,
        stop: Callable[[Callable[[], None]], object] | None = None,
    ) -> Worked:
        """The same as `run` for asyncio: an AsyncEngine, or a function that gives a connection to await.

        `handler` is an `async def`; `concurrency` is the number of tasks. What still runs after `grace` is cancelled,
        and its jobs are given back.
        """
        from leasehold.sql.queue.worker import Plan  # noqa: PLC0415
        from leasehold.sql.queue.worker_async import run_tasks  # noqa: PLC0415 - loads asyncio

        plan = Plan(self, handler, concurrency, in_transaction, until_idle, poll, seconds(grace, "grace"))
        return await run_tasks(plan, database, signals, stop)

    # --- operators

    def retry_dead(self, tx: Any, job_id: int | None = None, *, limit: int = MOST) -> int:
        """Make dead jobs ready, with all their attempts again: one, or at most `limit`; how many it were."""
        return call(tx, "retry_dead", self._retry_dead(job_id, limit))

    async def retry_dead_async(self, tx: Any, job_id: int | None = None, *, limit: int = MOST) -> int:
        """The same as `retry_dead` for asyncio."""
        return await call_async(tx, "retry_dead", self._retry_dead(job_id, limit))

    def _retry_dead(self, job_id: int | None, limit: int) -> Callable[[Wire], Coroutine[Any, Any, int]]:
        number = None if job_id is None else check_whole(job_id, "job_id", 1)
        most = _limit(limit)
        return lambda wire: self._rows(wire).retry_dead(number, most)

    def purge(
        self,
        tx: Any,
        job_id: int | None = None,
        *,
        dead: bool = False,
        older_than: Duration | None = None,
        limit: int = MOST,
    ) -> int:
        """Remove at most `limit` jobs that were completed (or are dead) for longer than `keep`; how many it were.

        With a `job_id` only this one, however long it has been over.
        """
        return call(tx, "purge", self._purge(job_id, older_than, limit, dead=dead))

    async def purge_async(
        self,
        tx: Any,
        job_id: int | None = None,
        *,
        dead: bool = False,
        older_than: Duration | None = None,
        limit: int = MOST,
    ) -> int:
        """The same as `purge` for asyncio."""
        return await call_async(tx, "purge", self._purge(job_id, older_than, limit, dead=dead))

    def _purge(
        self, job_id: int | None, older_than: Duration | None, limit: int, *, dead: bool
    ) -> Callable[[Wire], Coroutine[Any, Any, int]]:
        age = self.keep if older_than is None else seconds(older_than, "older_than")
        number = None if job_id is None else check_whole(job_id, "job_id", 1)
        most = _limit(limit)
        return lambda wire: self._rows(wire).purge("dead" if dead else "done", age, most, number)

    def jobs(self, tx: Any, *, state: JobState | None = None, limit: int = 100) -> list[JobInfo]:
        """The jobs in the table, by their numbers; only those in one state, if it is given."""
        return call(tx, "jobs", self._jobs(state, limit))

    async def jobs_async(self, tx: Any, *, state: JobState | None = None, limit: int = 100) -> list[JobInfo]:
        """The same as `jobs` for asyncio."""
        return await call_async(tx, "jobs", self._jobs(state, limit))

    def _jobs(self, state: JobState | None, limit: int) -> Callable[[Wire], Coroutine[Any, Any, list[JobInfo]]]:
        wanted = {"queue": self.name} if state is None else {"queue": self.name, "state": state}
        most = _limit(limit)
        return lambda wire: self._rows(wire).jobs(most, **wanted)

    def job(self, tx: Any, job_id: int) -> JobInfo | None:
        """One job; None if this queue has no such job."""
        found = call(tx, "job", self._job(job_id))
        return found[0] if found else None

    async def job_async(self, tx: Any, job_id: int) -> JobInfo | None:
        """The same as `job` for asyncio."""
        found = await call_async(tx, "job", self._job(job_id))
        return found[0] if found else None

    def _job(self, job_id: int) -> Callable[[Wire], Coroutine[Any, Any, list[JobInfo]]]:
        number = check_whole(job_id, "job_id", 1)
        return lambda wire: self._rows(wire).jobs(1, queue=self.name, id=number)

    # --- the table

    def create_tables(self, connection: Any) -> None:
        """Make the table where there is none; in MySQL and MariaDB before a transaction, elsewhere also inside one."""
        call(connection, "create_tables", lambda wire: self._rows(wire).make())

    async def create_tables_async(self, connection: Any) -> None:
        """The same as `create_tables` for asyncio."""
        await call_async(connection, "create_tables", lambda wire: self._rows(wire).make())

    def _rows(self, wire: Wire) -> Rows:
        return Rows(wire, _load(wire.dialect), self._rules)

    def _visibility(self, given: Duration | None) -> float:
        return self.visibility if given is None else ttl_seconds(given, "visibility")


def queue_schema(dialect: str = "postgresql", *, schema: str | None = None) -> str:
    """The statements that make the table of queues, in this schema of PostgreSQL or in the current one."""
    return _load(dialect).schema(schema)


def list_queues(tx: Any, *, schema: str | None = None) -> list[QueueCounts]:
    """All queues that have jobs in this database, and how many in each state."""
    return call(tx, "list_queues", lambda wire: _any_rows(wire, schema).counts())


async def list_queues_async(tx: Any, *, schema: str | None = None) -> list[QueueCounts]:
    """The same as `list_queues` for asyncio."""
    return await call_async(tx, "list_queues", lambda wire: _any_rows(wire, schema).counts())


def find_job(tx: Any, job_id: int, *, schema: str | None = None) -> JobInfo | None:
    """The job with this number, of whichever queue; None if there is none."""
    number = check_whole(job_id, "job_id", 1)
    found = call(tx, "find_job", lambda wire: _any_rows(wire, schema).jobs(1, id=number))
    return found[0] if found else None


async def find_job_async(tx: Any, job_id: int, *, schema: str | None = None) -> JobInfo | None:
    """The same as `find_job` for asyncio."""
    number = check_whole(job_id, "job_id", 1)
    found = await call_async(tx, "find_job", lambda wire: _any_rows(wire, schema).jobs(1, id=number))
    return found[0] if found else None


def _any_rows(wire: Wire, schema: str | None) -> Rows:
    """For questions about all queues."""
    return Rows(wire, _load(wire.dialect), Rules("", 1.0, None, 1, schema))


def _limit(value: int) -> int:
    most = check_whole(value, "limit", 1)
    if most > MOST:
        raise ConfigurationError(f"limit is at most {MOST}, not {most}: ask again for more")
    return most


def _worker() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"[:255]


def _load(dialect: str) -> Dialect:
    if dialect not in DIALECTS:
        raise ConfigurationError(f"no queues in {dialect!r}; there are in {', '.join(sorted(DIALECTS))}")
    return cast("Dialect", import_module(DIALECTS[dialect]))
