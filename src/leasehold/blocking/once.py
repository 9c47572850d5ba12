"""`Once`, `Attempt` and `Run`: the blocking twins of `leasehold.patterns.once`."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Literal, NoReturn, ParamSpec, TypeVar

from leasehold._runtimes.threads import run as finish
from leasehold.blocking._mirror import mirrors
from leasehold.blocking.lease import Lease, Lost
from leasehold.errors import ConfigurationError
from leasehold.patterns.job_result import JobResult
from leasehold.patterns.once import AsyncAttempt, AsyncOnce, AsyncRun

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from leasehold.durations import Duration
    from leasehold.values import Skipped

__all__ = ["Attempt", "Once", "Run"]

P = ParamSpec("P")
R = TypeVar("R")


@mirrors(AsyncOnce)
class Once:
    def __init__(self, twin: AsyncOnce) -> None:
        self._twin = twin

    @property
    @mirrors(AsyncOnce.name)
    def name(self) -> str:
        return self._twin.name

    @mirrors(AsyncOnce.attempt)
    def attempt(self, *, again: str | None = None, by: str | None = None) -> Attempt:
        return Attempt(self._twin.attempt(again=again, by=by))

    @mirrors(AsyncOnce.run)
    def run(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> JobResult[R]:
        with self.attempt() as run:
            return JobResult(function(*args, **kwargs)) if isinstance(run, Run) else JobResult(skipped=run)

    @mirrors(AsyncOnce.__call__)
    def __call__(self, function: Callable[P, R]) -> Callable[P, JobResult[R]]:
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigurationError(f"{function.__qualname__} is async; decorate it with a client of connect_async()")
        prepare = self._twin._prepare(function)

        @functools.wraps(function)
        def once(*args: P.args, **kwargs: P.kwargs) -> JobResult[R]:
            attempt, with_lease = prepare(args, kwargs)
            with Attempt(attempt) as run:
                if isinstance(run, Run):
                    return JobResult(function(*args, **with_lease(run.lease)))
                return JobResult(skipped=run)

        return once

    @mirrors(AsyncOnce.__reduce__)
    def __reduce__(self) -> NoReturn:
        self._twin.__reduce__()

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncOnce", "Once")


@mirrors(AsyncAttempt)
class Attempt:
    def __init__(self, twin: AsyncAttempt) -> None:
        self._twin = twin

    def __enter__(self) -> Run | Skipped:
        started = finish(self._twin.__aenter__())
        return Run(started) if isinstance(started, AsyncRun) else started

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        finish(self._twin.__aexit__(kind, error, trace))


@mirrors(AsyncRun)
class Run:
    def __init__(self, twin: AsyncRun) -> None:
        self._twin = twin

    @property
    @mirrors(AsyncRun.name)
    def name(self) -> str:
        return self._twin.name

    @property
    @mirrors(AsyncRun.slot)
    def slot(self) -> str:
        return self._twin.slot

    @property
    @mirrors(AsyncRun.lease)
    def lease(self) -> Lease:
        return Lease(self._twin.lease)

    @property
    @mirrors(AsyncRun.fence)
    def fence(self) -> int:
        return self._twin.fence

    @property
    @mirrors(AsyncRun.lost)
    def lost(self) -> Lost:
        return Lost(self._twin.lost)

    @mirrors(AsyncRun.check)
    def check(self, need: Duration = 0) -> None:
        self._twin.check(need)

    @mirrors(AsyncRun.fail)
    def fail(self) -> None:
        self._twin.fail()

    def __bool__(self) -> Literal[True]:
        return True

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncRun", "Run")
