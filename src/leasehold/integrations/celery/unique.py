"""Unique tasks: a decorator below `@app.task` that runs each call under the lock that its arguments name."""

from __future__ import annotations

import functools
import inspect
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NoReturn,
    ParamSpec,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    get_args,
)

from celery import current_task
from celery.exceptions import Ignore, Retry

from leasehold._durations import Duration, seconds
from leasehold._face.name_template import NameTemplate
from leasehold.errors import AcquireTimeout, ConfigurationError
from leasehold.integrations.celery.clients import PREFIX, client_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery, Task

    from leasehold import Client
    from leasehold._face.lock_spec import LockOptions
    from leasehold.integrations._options import ClientOptions

__all__ = ["Locks", "OnDuplicate", "SkippedTask", "was_skipped"]

OnDuplicate: TypeAlias = Literal["skip", "retry", "ignore", "raise"]
MARK = "leasehold.skipped"

P = ParamSpec("P")
R = TypeVar("R")

SkippedTask = TypedDict("SkippedTask", {"leasehold.skipped": str, "holder": str})
"""The result of a task that was skipped: the name of the lock, and the process that has it."""


def was_skipped(result: object) -> bool:
    """Whether the result of a unique task says that it was skipped."""
    return isinstance(result, dict) and MARK in result


class Locks:
    """The locks of an application. `url` and the options of `connect` are defaults of `leasehold_url` and so on."""

    def __init__(self, app: Celery, url: str | None = None, **options: Unpack[ClientOptions]) -> None:
        self._app = app
        given = options if url is None else {"url": url, **options}  # an option that is None says so: no limit, no log
        app.add_defaults({PREFIX + name: value for name, value in given.items()})

    @property
    def client(self) -> Client:
        """The client of this process, made at its first use; workers give everything back when they stop."""
        return client_of(self._app)

    def unique(
        self,
        template: str,
        *,
        on_duplicate: OnDuplicate = "skip",
        timeout: Duration = 0,
        retry_in: Duration = 5,
        **options: Unpack[LockOptions],
    ) -> Callable[[Callable[P, R]], Callable[P, R | SkippedTask]]:
        """A decorator below `@app.task`: one run at a time for the same name, as in `invoice:{customer_id}`.

        A duplicate waits up to `timeout` for its turn. Then "skip" ends it with a `SkippedTask` as its result, "retry"
        sends it again after `retry_in` without using up its retries, "ignore" ends it without any result, and "raise"
        lets it fail with `AcquireTimeout`. A message that comes again, because its worker was killed or because the
        task retries itself, is no duplicate: it finds its own lock, and comes back until that is free. A parameter
        called `lease` that the caller leaves out receives the lease.
        """
        if on_duplicate not in get_args(OnDuplicate):
            raise ConfigurationError(f"on_duplicate must be one of {get_args(OnDuplicate)}, not {on_duplicate!r}")
        if "reason" in options:
            raise ConfigurationError("the reason of a unique task is its id, by which its own lock is known again")
        limit, pause = seconds(timeout, "timeout"), seconds(retry_in, "retry_in")

        def decorate(function: Callable[P, R]) -> Callable[P, R | SkippedTask]:
            names = NameTemplate(template, function)

            @functools.wraps(function)
            def run(*args: P.args, **kwargs: P.kwargs) -> R | SkippedTask:
                task = _task()
                reason = None if task is None else f"task {task.request.id}"
                words: LockOptions = {"group": template, **options, "reason": reason}
                lock = self.client.lock(names.name(args, kwargs), **words)
                try:
                    lease = lock.acquire(limit)
                except AcquireTimeout as busy:
                    return _end_duplicate(task, busy, on_duplicate, pause, reason)
                with lease:
                    return function(*args, **names.with_lease(args, kwargs, lease))

            return _without_lease(run, function)

        return decorate


def _task() -> Task | None:
    """The task that runs; None when its function is called as a function."""
    task = current_task._get_current_object()  # noqa: SLF001 - how a proxy of Celery is opened
    return task if task is not None and task.request.id is not None else None


def _end_duplicate(
    task: Task | None, busy: AcquireTimeout, on_duplicate: OnDuplicate, pause: float, reason: str | None
) -> SkippedTask:
    holder = busy.holder
    is_own = holder is not None and holder.reason == reason
    if task is None or (on_duplicate == "raise" and not is_own):
        raise busy
    if on_duplicate == "retry" or is_own:
        _send_again(task, busy, pause)
    if on_duplicate == "ignore":
        raise Ignore(str(busy))
    return cast("SkippedTask", {MARK: str(busy.name), "holder": str(holder or "unknown")})


def _send_again(task: Task, busy: AcquireTimeout, pause: float) -> NoReturn:
    """As `task.retry` does, but with as many retries left as before: the task has not failed."""
    if task.request.is_eager or task.request.called_directly:
        raise busy
    again = task.signature_from_request(task.request, countdown=pause, retries=task.request.retries)
    again.apply_async()
    raise Retry(str(busy), exc=busy, when=pause, sig=again)


def _without_lease(run: Callable[P, R], function: Callable[..., Any]) -> Callable[P, R]:
    """Celery checks the arguments of a call against the signature; the lease is none of them."""
    signature = inspect.signature(function)
    kept = [parameter for parameter in signature.parameters.values() if parameter.name != "lease"]
    run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return run
