"""`Once`, `Attempt` and `Run`: the blocking twins of `leasehold._patterns.once`."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Literal, ParamSpec, TypeVar

from leasehold._blocking.lease import Lease, Lost
from leasehold._blocking.twin import BlockTwin, Twin
from leasehold._patterns.job_result import JobResult
from leasehold._patterns.once import AsyncAttempt, AsyncOnce, AsyncRun
from leasehold._runtimes.threads import run
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._durations import Duration
    from leasehold.values import Skipped

__all__ = ["Attempt", "Once", "Run"]

P = ParamSpec("P")
R = TypeVar("R")


class Once(Twin):
    """A job that runs once per slot, made by `client.once`: use it as a decorator, or call `run` or `attempt`."""

    _twin: AsyncOnce

    @property
    def name(self) -> str:
        """The name of the job, which is also the name of its lock; for a decorator, the template of the names."""
        return self._twin.name

    def attempt(self, *, again: str | None = None, by: str | None = None) -> Attempt:
        """A context manager for one attempt: `with job.attempt() as run`, and inside `if run:`.

        It gives a `Run` when the slot is ours, and a false `Skipped` when it is not. With on_conflict="raise" it raises
        instead, so that the block needs no `if`. `again` is an operator's reason to run a slot once more that has been
        run; of several who do that at the same time one runs. It is logged and recorded, with `by`.
        """
        return Attempt._of(self._twin.attempt(again=again, by=by))

    def run(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> JobResult[R]:
        """Call the function if the slot is ours. The result says whether it `ran`, and has its `value`."""
        with self.attempt() as run:
            return JobResult(function(*args, **kwargs)) if isinstance(run, Run) else JobResult(skipped=run)

    def __call__(self, function: Callable[P, R]) -> Callable[P, JobResult[R]]:
        """Decorate a function: each call is one attempt at the job whose name is made from its arguments.

        It returns what `run` does. A `slot` may be a template too. A parameter called `lease` that the caller leaves
        out receives the lease.
        """
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigurationError(f"{function.__qualname__} is async; decorate it with a client of connect_async()")
        prepare = self._twin._prepare(function)

        @functools.wraps(function)
        def once(*args: P.args, **kwargs: P.kwargs) -> JobResult[R]:
            attempt, with_lease = prepare(args, kwargs)
            with Attempt._of(attempt) as run:
                if isinstance(run, Run):
                    return JobResult(function(*args, **with_lease(run.lease)))
                return JobResult(skipped=run)

        return once


class Attempt(BlockTwin):
    """One attempt at a job; made by `attempt`, good for one block."""

    _twin: AsyncAttempt

    def __enter__(self) -> Run | Skipped:
        started = run(self._twin.__aenter__())
        return Run._of(started) if isinstance(started, AsyncRun) else started


class Run(Twin):
    """A slot that is ours: the block runs under the lease of the job's lock."""

    _twin: AsyncRun

    @property
    def name(self) -> str:
        """The name of the job."""
        return self._twin.name

    @property
    def slot(self) -> str:
        """The slot that this run is for: the local time at which it begins, or the caller's own label."""
        return self._twin.slot

    @property
    def lease(self) -> Lease:
        """The lease of the job's lock, which is renewed while the block runs."""
        return Lease._of(self._twin.lease)

    @property
    def fence(self) -> int:
        """The fencing token of the lease."""
        return self._twin.fence

    @property
    def lost(self) -> Lost:
        """Whether the lease is lost, so that another run may have begun: `is_set()` and `wait(timeout)`."""
        return Lost._of(self._twin.lost)

    def check(self, need: Duration = 0) -> None:
        """Raise `LeaseLost` unless the lease is ours for another `need` seconds; call it before a side effect."""
        self._twin.check(need)

    def fail(self) -> None:
        """Count this run as failed although the block ends without an exception."""
        self._twin.fail()

    def __bool__(self) -> Literal[True]:
        return True
