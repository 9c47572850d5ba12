"""The worker of a queue: claims in a short transaction, works, and answers; once for threads and for asyncio.

A claim loop claims one job at a time and works on it. One more loop, the keeper, extends the claims of jobs that run
long, and removes completed jobs. Nothing here decides whether a late answer counts: the row does, by its fence.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Protocol

from leasehold._backoff import Backoff
from leasehold._log import logger
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._words import kind_of
from leasehold.errors import ConfigurationError, StaleFence
from leasehold.sql.calls import call_either
from leasehold.sql.errors import is_retryable
from leasehold.sql.queue.job import check_whole, error_text
from leasehold.sql.queue.transactions import open_source

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator

    from leasehold.spi import Runtime
    from leasehold.sql.queue.job import Job
    from leasehold.sql.queue.queue import Queue
    from leasehold.sql.queue.rows import Rows
    from leasehold.sql.queue.transactions import TransactionSource

__all__ = ["Face", "Plan", "Worked", "Worker", "handler_is_async", "run_blocking", "stopping"]

ENDING = (signal.SIGTERM, signal.SIGINT)
PURGE_EVERY = 60.0
SIGNALS_SEEN_WITHIN = 0.5
KEEPER_ENDS_WITHIN = 5.0  # where its database answers
HOPELESS = (ConfigurationError, AttributeError, ImportError, NameError, TypeError)  # no waiting heals these
AFTER_A_FAILURE = Backoff(("100ms", "500ms"), factor=2, longest="10s", jitter="full")
SAME_AGAIN = Backoff(("20ms",), factor=3, longest="1s", jitter="full", tries=5)  # deadlocks, serialization failures


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of `run`."""

    queue: Queue
    handler: Callable[..., object]
    concurrency: int
    in_transaction: bool
    until_idle: bool
    poll: Backoff
    grace: float

    def __post_init__(self) -> None:
        check_whole(self.concurrency, "concurrency", 1)
        if not isinstance(self.poll, Backoff):
            raise ConfigurationError(f"poll must be a leasehold.Backoff, not {kind_of(self.poll)}")


@dataclass(slots=True)
class Worked:
    """What a run has done. `refused`: handlers that ended after their job had been claimed by another."""

    completed: int = 0
    failed: int = 0
    dead: int = 0
    refused: int = 0


@dataclass(slots=True)
class _Running:
    """A job whose handler runs; the claim is good until `ends` at least, by the clock of this process."""

    job: Job
    ends: float


class Face(Protocol):
    """What threads and tasks do differently."""

    runtime: Runtime

    def transactions(self) -> TransactionSource:
        """Transactions for one loop."""

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Run it beside this."""

    async def handle(self, *arguments: object) -> None:
        """Call the user's function."""


@dataclass
class Worker:
    """One run."""

    plan: Plan
    face: Face
    worked: Worked = field(default_factory=Worked)
    _running: dict[int, _Running] = field(default_factory=dict)
    _loops: int = 0
    _error: BaseException | None = None

    def __post_init__(self) -> None:
        self.stop: Any = self.face.runtime.signal()
        self.over: Any = self.face.runtime.signal()
        self._keeper_ended: Any = self.face.runtime.signal()
        self._guard: Any = self.face.runtime.guard()

    async def run(self) -> Worked:
        """Work until `stop`, or until there is nothing to do; what ended one of its loops is raised."""
        runtime = self.face.runtime
        await self._make_tables()
        self._loops = self.plan.concurrency
        for number in range(self.plan.concurrency):
            self.face.spawn(self._claim_loop(), f"leasehold queue {self.plan.queue.name} {number + 1}")
        self.face.spawn(self._keep(), f"leasehold queue {self.plan.queue.name} keeper")
        try:
            # Not without end: a signal that the system gives to another thread does not wake this one.
            while not await runtime.wait(self.stop, runtime.now() + SIGNALS_SEEN_WITHIN):
                pass
            if not await runtime.wait(self.over, runtime.now() + self.plan.grace):
                logger.warning("%d handlers of %r did not end in time", len(self._running), self.plan.queue)
        finally:
            self.stop.set()
            self.over.set()
        # It may be using a connection out of what the caller closes next.
        await runtime.wait(self._keeper_ended, runtime.now() + min(self.plan.grace, KEEPER_ENDS_WITHIN))
        if self._error is not None:
            raise self._error
        return self.worked

    async def _make_tables(self) -> None:
        source = self.face.transactions()
        try:
            async with source.plain() as connection:
                await call_either(connection, lambda wire: self._rows(wire).make())
        finally:
            await source.close()

    # --- a claim loop

    async def _claim_loop(self) -> None:
        source = self.face.transactions()
        try:
            await self._claim_and_work(source)
        except Exception as error:  # noqa: BLE001 - raised by `run`, which has its own thread or task
            self._error = error
            self.stop.set()
        finally:
            await source.close()
            with self._guard:
                self._loops -= 1
                if self._loops == 0:
                    self.stop.set()
                    self.over.set()

    async def _claim_and_work(self, source: TransactionSource) -> None:
        idle = failures = 0
        while not self.stop.is_set():
            job: Job | None = None
            asked = self.face.runtime.now()
            try:
                job = await self._claim(source)
                failures = 0
            except HOPELESS:
                raise
            except Exception as error:  # noqa: BLE001 - the database is away, or busy
                self._log_failure("claim a job", error)
                await self._pause(AFTER_A_FAILURE.delay(failures, self.face.runtime.random()))
                failures += 1
                continue
            if job is not None:
                idle = 0
                await self._work(source, _Running(job, asked + self.plan.queue.visibility))
            elif self.plan.until_idle:
                return
            else:
                await self._pause(self.plan.poll.delay(idle, self.face.runtime.random()))
                idle += 1

    async def _claim(self, source: TransactionSource) -> Job | None:
        """A claim whose commit got no answer may be ours: then no worker has the job until its visibility is over."""
        queue = self.plan.queue
        claim = queue._claim(1, None)  # noqa: SLF001 - the worker is a part of the queue
        async with source.begin(claims=True) as tx:
            jobs = await call_either(tx, claim)
        return jobs[0] if jobs else None

    async def _work(self, source: TransactionSource, running: _Running) -> None:
        job = running.job
        with self._guard:
            self._running[job.id] = running
        try:
            if self.plan.in_transaction:
                done = await self._work_inside(source, job)
            else:
                await self.face.handle(job)
                done = await self._answer(source, running, lambda rows: rows.complete(job), "complete")
            self.worked.completed += done
        except Exception as error:  # noqa: BLE001 - whatever the handler raised is kept with the job
            await self._fail(source, running, error)
        except GeneratorExit:
            raise
        except BaseException:  # cancelled: the job is given back, for another worker
            await self.face.runtime.shielded(
                lambda: self._answer(source, running, lambda rows: rows.release(job), "give back")
            )
            raise
        finally:
            with self._guard:
                self._running.pop(job.id, None)

    async def _work_inside(self, source: TransactionSource, job: Job) -> bool:
        """The work and its completion, committed together.

        The completion comes first: it locks the job's row until the commit, so that no other worker can claim the
        job while the handler runs, however long that takes. And a claim that is over is refused before work is done.
        """
        for attempt in SAME_AGAIN:  # pragma: no branch - it ends inside
            try:
                async with source.begin() as tx:
                    try:
                        await call_either(tx, lambda wire: self._rows(wire).complete(job))
                    except StaleFence as refusal:
                        self._log_refusal("complete", refusal)
                        return False
                    await self.face.handle(tx, job)
            except Exception as error:
                if not is_retryable(error) or SAME_AGAIN.is_last(attempt):
                    raise
            else:
                return True
        return False  # pragma: no cover

    async def _fail(self, source: TransactionSource, running: _Running, error: Exception) -> None:
        job, text = running.job, error_text(error)
        pause = self.plan.queue.pause_after(job, error)
        logger.warning("job %d of %r failed in attempt %d: %s", job.id, job.queue, job.attempt, text)
        if await self._answer(source, running, lambda rows: rows.fail(job, text, pause), "fail"):
            self.worked.failed += 1
            self.worked.dead += pause is None

    async def _answer(
        self,
        source: TransactionSource,
        running: _Running,
        answer: Callable[[Rows], Coroutine[Any, Any, None]],
        verb: str,
    ) -> bool:
        """Write the answer, again until it is confirmed: the same answer twice is one. False if it was too late."""
        for attempt in range(1_000_000):
            try:
                async with source.begin() as tx:
                    await call_either(tx, lambda wire: answer(self._rows(wire)))
            except StaleFence as refusal:
                self._log_refusal(verb, refusal)
                return False
            except Exception as error:
                self._log_failure(f"{verb} job {running.job.id}", error)
                pause = AFTER_A_FAILURE.delay(attempt, self.face.runtime.random())
                if isinstance(error, HOPELESS) or self.face.runtime.now() + pause > running.ends:
                    raise
                await self.face.runtime.sleep(pause)
            else:
                return True
        return False  # pragma: no cover

    # --- the keeper

    async def _keep(self) -> None:
        runtime, source = self.face.runtime, self.face.transactions()
        next_purge = runtime.now()
        try:
            while not self.over.is_set():
                try:
                    await self._extend_all(source)
                    if runtime.now() >= next_purge:
                        await self._purge(source)
                        next_purge = runtime.now() + PURGE_EVERY
                except Exception as error:  # noqa: BLE001 - tried again soon; the claims last for a few times that
                    self._log_failure("extend claims", error)
                await runtime.wait(self.over, runtime.now() + min(self.plan.queue.visibility / 4, PURGE_EVERY))
        finally:
            await source.close()
            self._keeper_ended.set()

    async def _extend_all(self, source: TransactionSource) -> None:
        """Not where the work is in a transaction, which has locked the row already."""
        with self._guard:
            running = () if self.plan.in_transaction else tuple(self._running.values())
        for each in running:
            if each.job.lost:
                continue
            until = self.face.runtime.now() + self.plan.queue.visibility
            try:
                async with source.begin() as tx:
                    await call_either(tx, lambda wire: self._rows(wire).extend(each.job, self.plan.queue.visibility))  # noqa: B023
            except StaleFence as refusal:
                if each.job.id in self._running:  # it was not answered meanwhile
                    each.job.lost = True
                    self._log_refusal("extend", refusal)
            else:
                each.ends = until

    async def _purge(self, source: TransactionSource) -> None:
        purge = self.plan.queue._purge(None, None, 1000, dead=False)  # noqa: SLF001
        async with source.begin(claims=True) as tx:
            await call_either(tx, purge)

    # --- small things

    def _rows(self, wire: Any) -> Rows:
        return self.plan.queue._rows(wire)  # noqa: SLF001

    async def _pause(self, seconds: float) -> None:
        await self.face.runtime.wait(self.stop, self.face.runtime.now() + seconds)

    def _log_refusal(self, verb: str, refusal: StaleFence) -> None:
        if verb != "extend":
            self.worked.refused += 1
        logger.warning("%s", refusal)

    def _log_failure(self, what: str, error: Exception) -> None:
        level = logger.info if is_retryable(error) else logger.warning
        level("the worker of %r could not %s: %s; it tries again", self.plan.queue, what, error_text(error))


# --- threads


class _Threads:
    """The loops are daemon threads: a handler that never ends does not keep the process."""

    def __init__(self, handler: Callable[..., object], database: Any) -> None:
        self.runtime: Runtime = ThreadRuntime()
        self._handler = handler
        self._database = database

    def transactions(self) -> TransactionSource:
        return open_source(self._database, is_async=False)

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        self.runtime.spawn(coroutine, name)

    async def handle(self, *arguments: object) -> None:
        self._handler(*arguments)


def handler_is_async(handler: Callable[..., object]) -> bool:
    """Whether a call of it has to be awaited."""
    return iscoroutinefunction(handler) or iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


def run_blocking(
    plan: Plan, database: Any, signals: Iterable[int] | None, stop: Callable[[Callable[[], None]], object] | None
) -> Worked:
    """Run a worker on threads, and wait for it."""
    if handler_is_async(plan.handler):
        raise ConfigurationError("this handler is an async def: use await queue.run_async(...)")
    worker = Worker(plan, _Threads(plan.handler, database))
    if stop is not None:
        stop(worker.stop.set)
    with stopping(worker.stop.set, signals):
        return run(worker.run())


@contextmanager
def stopping(stop: Callable[[], object], signals: Iterable[int] | None) -> Iterator[None]:
    """Call `stop` for the first signal, and leave a second one to its handler of before; only in the main thread."""
    in_main = threading.current_thread() is threading.main_thread()
    if signals is not None and not in_main and tuple(signals):
        raise ConfigurationError("only the main thread can have signal handlers; leave signals= out in this one")
    numbers = tuple(ENDING if signals is None else signals) if in_main else ()
    previous = {number: signal.getsignal(number) for number in numbers}
    ours = [number for number, handler in previous.items() if handler not in (None, signal.SIG_IGN)]

    def restore() -> None:
        for number in ours:
            signal.signal(number, previous[number])

    def handle(*_: object) -> None:
        restore()
        stop()

    for number in ours:
        signal.signal(number, handle)
    try:
        yield
    finally:
        restore()
