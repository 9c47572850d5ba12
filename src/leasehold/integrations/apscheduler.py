"""APScheduler 3: an executor that runs each scheduled time of a job once, on however many scheduler processes.

    scheduler = BackgroundScheduler(executors={"default": OnceExecutor(client)})
    scheduler.add_job(report, "cron", hour=2, id="report")

Every process has the same jobs and wakes at the same times; the first to get a scheduled time runs it, the others skip
it. A process that vanishes in the middle leaves its run to those that stand by (`on_conflict="standby"`), if any do.
"""

from __future__ import annotations

import re
from datetime import UTC
from typing import TYPE_CHECKING, Any

from apscheduler.executors.base import run_job
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.triggers.interval import IntervalTrigger

from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from apscheduler.job import Job

    from leasehold import Client
    from leasehold._patterns.once import OnConflict, OnFailure

__all__ = ["OnceExecutor"]

_MADE_UP = re.compile(r"[0-9a-f]{32}")  # the id that APScheduler gives a job without one


class OnceExecutor(ThreadPoolExecutor):
    """A pool of threads in which a job runs under `client.once`, with its scheduled time as the slot.

    The result of a run, in the events of the scheduler, is a `JobResult`, which is false if another process ran it.
    `prefix` goes before the id of a job in the name of its lock. `on_conflict`, `on_failure`, `timeout` and `keep` are
    those of `client.once`; with "standby" a process waits for the one that runs, and takes over if that vanishes.
    """

    def __init__(
        self,
        client: Client,
        max_workers: int = 10,
        *,
        prefix: str = "apscheduler:",
        on_conflict: OnConflict = "skip",
        on_failure: OnFailure = "open",
        **options: Any,
    ) -> None:
        super().__init__(max_workers)
        self._client = client
        self._prefix = prefix
        self._options = {"on_conflict": on_conflict, "on_failure": on_failure, **options}
        client.once(f"{prefix}job", slot="slot", **self._options)  # checks the options now

    def _do_submit_job(self, job: Job, run_times: Sequence[datetime]) -> None:
        _check(job)
        future = self._pool.submit(self._run, job, list(run_times))

        def report(done: Any) -> None:
            error = done.exception()
            if error is None:
                self._run_job_success(job.id, done.result())
            else:
                self._run_job_error(job.id, error, error.__traceback__)

        future.add_done_callback(report)

    def _run(self, job: Job, run_times: Sequence[datetime]) -> list[Any]:
        """The events of one run for each scheduled time."""
        events: list[Any] = []
        for run_time in run_times:
            once = self._client.once(f"{self._prefix}{job.id}", slot=_slot(job, run_time), **self._options)
            events += run_job(_OnceJob(job, once.run), job._jobstore_alias, [run_time], self._logger.name)  # noqa: SLF001
        return events


class _OnceJob:
    """The job as `run_job` wants it, with a function that asks first."""

    def __init__(self, job: Job, run: Callable[..., Any]) -> None:
        self._job = job
        self.id = job.id
        self.misfire_grace_time = job.misfire_grace_time
        self.func = run
        self.args = (job.func, *job.args)
        self.kwargs = job.kwargs

    def __str__(self) -> str:
        return str(self._job)


def _check(job: Job) -> None:
    """Refuse a job whose name or times are different in every process: all of them would run it."""
    if _MADE_UP.fullmatch(job.id):
        raise ConfigurationError(
            f"the job {job.name!r} has no id of its own, so other processes know it by another one, and would run it "
            "as well: say add_job(..., id=...)"
        )
    if getattr(job.trigger, "jitter", None):
        raise ConfigurationError(
            f"the job {job.id!r} has jitter, so every process would run it at a time of its own; leave it out: only "
            "one process runs the job anyway"
        )


def _slot(job: Job, run_time: datetime) -> str:
    """What all processes call this run: its scheduled time.

    Intervals count from the start of each process. There it is the number of the interval since 1970: a process comes
    by once in each.
    """
    if isinstance(job.trigger, IntervalTrigger):
        return str(int(run_time.timestamp() // job.trigger.interval_length))
    return run_time.astimezone(UTC).isoformat()
