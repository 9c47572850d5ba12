"""Once: a job that runs once per slot, not only "not at the same time". The async face, which is the core face.

An attempt reads the store's time and the job's record, finds its slot, takes the job's lock, and reads the record
again under its fence: from then on no earlier holder can write. When the run ends well, the record is written before
the lock is released. Only the store decides: its clock, its lock, its record.

This is not a scheduler. A holder that vanishes after its work and before its record leaves the slot open, and the work
happens again; the guide explains what to do about that.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Literal, NoReturn, ParamSpec, TypeAlias, TypedDict, TypeVar, cast, get_args

from leasehold._core.names import check_fact, check_name
from leasehold._core.validity import believed_until
from leasehold._durations import optional_seconds
from leasehold._face.hold import lost_error
from leasehold._face.lock_spec import LockOptions
from leasehold._face.name_template import NameTemplate
from leasehold._face.operator_events import RunAgain
from leasehold._patterns.job_records import record_key, skipped_by
from leasehold._patterns.job_result import JobResult, conflict_of
from leasehold._patterns.once_run import TAKEN, AsyncRun, Order
from leasehold._patterns.pattern_events import RunSkipped
from leasehold._patterns.retry import retry_until
from leasehold._patterns.slots import Labelled, check_label, slots_for
from leasehold.errors import AcquireTimeout, BackendError, ConfigurationError, Paused
from leasehold.values import Skipped

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from types import TracebackType

    from leasehold._core.open_client import OpenClient
    from leasehold._durations import Duration
    from leasehold._face.client import AsyncClient
    from leasehold._face.lease import AsyncLease
    from leasehold._face.lock_spec import Timeout
    from leasehold._patterns.slots import Slot, Slots
    from leasehold.spi import Recording
    from leasehold.values import Reading

__all__ = ["AsyncAttempt", "AsyncOnce", "AsyncRun", "OnConflict", "OnFailure", "OnceOptions"]

OnConflict: TypeAlias = Literal["skip", "raise", "standby"]
OnFailure: TypeAlias = Literal["open", "close"]

P = ParamSpec("P")
R = TypeVar("R")


class OnceOptions(TypedDict, total=False):
    """The options of `client.once`."""

    every: Duration | None
    cron: str | None
    slot: str | None
    tz: str
    on_conflict: OnConflict
    on_failure: OnFailure
    keep: Duration | None
    timeout: Timeout
    ttl: Duration | None
    max_hold: Duration | None
    group: str | None
    reason: str | None


class AsyncOnce:
    """A job that runs once per slot, made by `client.once`: use it as a decorator, or call `run` or `attempt`."""

    def __init__(
        self,
        client: AsyncClient,
        template: str,
        *,
        every: Duration | None = None,
        cron: str | None = None,
        slot: str | None = None,
        tz: str = "UTC",
        on_conflict: OnConflict = "skip",
        on_failure: OnFailure = "open",
        keep: Duration | None = None,
        timeout: Timeout = ...,
        ttl: Duration | None = None,
        max_hold: Duration | None = None,
        group: str | None = None,
        reason: str | None = None,
    ) -> None:
        self._client = client
        self._template = check_name(template)
        self._options = LockOptions(ttl=ttl, max_hold=max_hold, group=group or template[:256], reason=reason)
        self._slot = slot
        self._slots = slots_for(every=every, cron=cron, slot=slot, tz=tz)
        self._on_conflict: OnConflict = _one_of(on_conflict, "on_conflict", OnConflict)
        self._on_failure: OnFailure = _one_of(on_failure, "on_failure", OnFailure)
        self._keep = optional_seconds(keep, "keep") or 0.0
        self._timeout = timeout if timeout is ... else optional_seconds(timeout, "timeout")
        client.lock(template, **self._options)  # to check the options now rather than in the first run

    @property
    def name(self) -> str:
        """The name of the job, which is also the name of its lock; for a decorator, the template of the names."""
        return self._template

    def attempt(self, *, again: str | None = None, by: str | None = None) -> AsyncAttempt:
        """A context manager for one attempt: `async with job.attempt() as run`, and inside `if run:`.

        It gives an `AsyncRun` when the slot is ours, and a false `Skipped` when it is not. With on_conflict="raise" it
        raises instead, so that the block needs no `if`. `again` is an operator's reason to run a slot once more that
        has been run; of several who do that at the same time one runs. It is logged and recorded, with `by`.
        """
        order = None
        if again is not None:
            if not check_fact(again, "again"):
                raise ConfigurationError("running a slot again needs a reason, which is logged and recorded")
            order = Order(again, check_fact(by, "by") or str(self._client._holder(None)))
        return self._attempt(self._template, self._slots, order)

    async def run(self, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> JobResult[R]:
        """Call the function if the slot is ours. The result says whether it `ran`, and has its `value`."""
        async with self.attempt() as run:
            return JobResult(await function(*args, **kwargs)) if isinstance(run, AsyncRun) else JobResult(skipped=run)

    def __call__(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, JobResult[R]]]:
        """Decorate a function: each call is one attempt at the job whose name is made from its arguments.

        It returns what `run` does. A `slot` may be a template too. A parameter called `lease` that the caller leaves
        out receives the lease.
        """
        if not inspect.iscoroutinefunction(function):
            raise ConfigurationError(f"{function.__qualname__} is not async; decorate it with a client of connect()")
        prepare = self._prepare(function)

        @functools.wraps(function)
        async def once(*args: P.args, **kwargs: P.kwargs) -> JobResult[R]:
            attempt, with_lease = prepare(args, kwargs)
            async with attempt as run:
                if isinstance(run, AsyncRun):
                    return JobResult(await function(*args, **with_lease(run.lease)))
                return JobResult(skipped=run)

        return once

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: connections do not travel."""
        raise TypeError("a job belongs to its client; make one with the same name in the other process")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._template!r}>"

    def _prepare(
        self, function: Callable[..., Any]
    ) -> Callable[[tuple[Any, ...], dict[str, Any]], tuple[AsyncAttempt, Callable[[object], dict[str, Any]]]]:
        """What both faces of the decorator need for one call: its attempt, and its arguments once there is a lease."""
        names = NameTemplate(self._template, function)
        labels = None if self._slot is None else NameTemplate(self._slot, function)

        def prepare(
            args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> tuple[AsyncAttempt, Callable[[object], dict[str, Any]]]:
            slots = self._slots if labels is None else Labelled(check_label(labels.name(args, kwargs)))
            attempt = self._attempt(names.name(args, kwargs), slots)
            return attempt, functools.partial(names.with_lease, args, kwargs)

        return prepare

    def _attempt(self, name: str, slots: Slots, order: Order | None = None) -> AsyncAttempt:
        return AsyncAttempt(self, check_name(name), slots, order)


class AsyncAttempt:
    """One attempt at a job; made by `attempt`, good for one block."""

    def __init__(self, job: AsyncOnce, name: str, slots: Slots, order: Order | None = None) -> None:
        self._job = job
        self._order = order
        self._client = job._client
        self._name = name
        self._slots = slots
        self._lock = job._client.lock(name, **job._options)
        self._entered = False
        self._run: AsyncRun | None = None

    async def __aenter__(self) -> AsyncRun | Skipped:
        if self._entered:
            raise TypeError("this attempt is in use or used up; call attempt() again for another block")
        self._entered = True
        started = await self._start()
        if isinstance(started, AsyncRun):
            self._run = started
            started._enter()
            return started
        opened = self._client._open()
        if opened.events.wanted(RunSkipped):
            opened.events.emit(RunSkipped(self._name, started, self._lock.group or self._name))
        if self._job._on_conflict == "raise":
            raise conflict_of(started, opened.backend.label)
        return started

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._run is not None:
            await self._run._leave(error)

    async def _start(self) -> AsyncRun | Skipped:
        opened = self._client._open()
        deadline = self._client._deadline(self._job._timeout)
        limit = opened.runtime.now() + opened.connect_timeout
        reading = await self._read(opened, 0, limit)
        slot = self._slots.at(reading.time)
        skipped = skipped_by(self._name, reading, slot)
        if skipped is not None and (self._order is None or skipped.slot != slot.label):
            return skipped  # the common case of a late machine: one request, no lock
        seen = None if skipped is None or reading.record is None else reading.record.value
        if self._job._on_conflict == "standby":
            lease = await self._lock._acquire_until(deadline)
        else:
            try:
                lease = await self._try_lock(opened)
            except Paused as paused:
                return Skipped(self._name, slot.label, paused=paused.pause)
            except AcquireTimeout as busy:
                return Skipped(self._name, slot.label, busy.holder)
        return await self._under(opened, lease, slot, seen)

    async def _try_lock(self, opened: OpenClient) -> AsyncLease:
        """Ask once; and again if no holder is known, and a grant may have run out before it arrived."""
        spec, runtime = self._lock._spec, opened.runtime
        while True:
            asked = runtime.now()
            try:
                return await self._lock.acquire(0)
            except AcquireTimeout as busy:
                trusted = believed_until(asked, min(spec.ttl, spec.max_hold or spec.ttl))
                if busy.holder is not None or runtime.now() < trusted:
                    raise

    async def _under(self, opened: OpenClient, lease: AsyncLease, slot: Slot, seen: bytes | None) -> AsyncRun | Skipped:
        """Read again now that no other run can begin, and release the lock unless the slot is ours.

        `seen` is the record of the run that is to be repeated. If another is there by now, another was faster.
        """
        try:
            reading = await self._read(opened, lease.fence, opened.runtime.now() + lease.remaining())
            if reading.fence > lease.fence:
                raise lost_error(lease, TAKEN, completed=False)
            skipped = skipped_by(self._name, reading, slot)
            repeats = seen is not None and reading.record is not None and reading.record.value == seen
            if skipped is None or repeats:
                if (loss := lease.loss) is not None:  # no loss that comes before the block can interrupt it
                    raise lost_error(lease, loss, completed=False)
                return self._begin(opened, lease, slot, reading.time)
            await _let_go(lease)
        except GeneratorExit:
            raise  # nothing can be awaited any more; the ttl frees the lock
        except BaseException:
            await _let_go(lease)
            raise
        return skipped

    def _begin(self, opened: OpenClient, lease: AsyncLease, slot: Slot, time: float) -> AsyncRun:
        order = self._order
        if order is not None:
            opened.events.emit(RunAgain(self._name, slot.label, lease.fence, order.reason, order.by))
        return AsyncRun(self._job, opened, lease, slot=slot, key=self._key(), time=time, order=order)

    async def _read(self, opened: OpenClient, fence: int, until: float) -> Reading:
        store = cast("Recording", opened.backend)
        return await retry_until(until, opened, self._name, lambda: store.read(self._key(), fence))

    def _key(self) -> str:
        label = self._slots.label if isinstance(self._slots, Labelled) else None
        return record_key(self._client._namespace, self._name, label)


async def _let_go(lease: AsyncLease) -> None:
    """Release a lock that was not used; if the store does not answer, the ttl frees it."""
    try:
        await lease.release()
    except BackendError:
        return


def _one_of(value: Any, what: str, choices: Any) -> Any:
    if value not in get_args(choices):
        raise ConfigurationError(f"{what} must be one of {', '.join(map(repr, get_args(choices)))}, not {value!r}")
    return value
