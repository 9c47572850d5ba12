"""Descriptions of locks: `AsyncLock`, the pair of a read/write lock, several locks at once, and a mutex-shaped adapter.

A lock carries no state. It can be made once and shared by all threads and tasks; every acquire gives a lease of its
own.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, Unpack, overload

from leasehold._backoff import QUEUE_OR_POLL
from leasehold._core import acquire as core
from leasehold._durations import seconds
from leasehold._face.hold import AsyncHold
from leasehold._face.lease import AsyncLease, AsyncLeaseSet
from leasehold._face.lock_spec import how_to_wait
from leasehold._face.lock_words import LockWords
from leasehold._record import replace
from leasehold.errors import AcquireTimeout, BackendError, LeaseLost
from leasehold.values import Loss, LossReason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Sequence
    from types import TracebackType

    from leasehold._backoff import HowToWait
    from leasehold._core.open_client import OpenClient
    from leasehold._face.client import AsyncClient
    from leasehold._face.lock_spec import LockSpec, OnBusy, Timeout, WaitOptions

__all__ = ["AsyncLock", "AsyncLockSet", "AsyncMutex", "AsyncRWLock"]

B = TypeVar("B")


class AsyncLock(LockWords):
    """A name to be locked, and how: made by `client.lock`, `client.semaphore` or `client.rwlock`."""

    def __init__(self, client: AsyncClient, spec: LockSpec) -> None:
        self._client = client
        self._spec = spec
        self._process = client._process  # that is the spec's holder

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._spec.name

    @property
    def ttl(self) -> float:
        """Seconds after which the lock frees itself when its holder vanishes."""
        return self._spec.ttl

    @property
    def group(self) -> str | None:
        """What this lock counts as in statistics, where its own name would be one of too many."""
        return self._spec.group

    def hold(
        self,
        timeout: Timeout = ...,
        *,
        on_lost: Callable[[Loss], object] | None = None,
        on_busy: OnBusy = None,
        **waiting: Unpack[WaitOptions],
    ) -> AsyncHold[AsyncLease]:
        """A context manager that acquires, runs the block under the lease, and releases.

        On loss the block is cancelled, and `on_lost(loss)` is called. The block then ends with `LeaseLost`. An
        exception of the block itself is never hidden. `backoff` and `on_wait` are those of `acquire`. When the lock
        cannot be had, `on_busy(error)` is called before the `AcquireTimeout` is raised: a block cannot be skipped. What
        it raises itself is raised instead.
        """
        acquire = self._acquiring(waiting) if waiting else self._acquire_until
        return AsyncHold(self._client, acquire, timeout, on_lost, on_busy)

    @overload
    async def acquire(
        self, timeout: Timeout = ..., *, on_busy: None = None, **waiting: Unpack[WaitOptions]
    ) -> AsyncLease: ...
    @overload
    async def acquire(
        self,
        timeout: Timeout = ...,
        *,
        on_busy: Callable[[AcquireTimeout], Awaitable[B]],
        **waiting: Unpack[WaitOptions],
    ) -> AsyncLease | B: ...
    @overload
    async def acquire(
        self, timeout: Timeout = ..., *, on_busy: Callable[[AcquireTimeout], B], **waiting: Unpack[WaitOptions]
    ) -> AsyncLease | B: ...
    async def acquire(self, timeout: Timeout = ..., *, on_busy: OnBusy = None, **waiting: Unpack[WaitOptions]) -> Any:
        """Wait for the lock at most `timeout` seconds and return the lease; None waits for ever.

        Raises `AcquireTimeout` when the time is over, and a `BackendError` when the store cannot be reached. With
        `on_busy`, what is returned instead of an `AcquireTimeout` is the result of `on_busy(error)`, which may be a
        coroutine.

        `backoff`: do not queue, but try again after each pause of this `Backoff`, until `timeout` or until its tries
        are used up. `on_wait(position, holder, waited)` is called when the wait begins and then every second, in the
        waiting thread or task: the place in the queue (1 is next; None where there is no queue), who has the lock, as
        far as it is known, and the seconds so far. What it raises ends the wait.
        """
        if on_busy is None and not waiting:
            deadline = self._client._deadline(timeout)
            opened = self._open()
            return AsyncLease(opened, await core.acquire(opened, self._spec, deadline))
        return await self._client._acquire_or(on_busy, self._acquiring(waiting), timeout)

    async def try_acquire(self) -> AsyncLease | None:
        """The lease if the lock is free now, else None."""
        opened = self._open()
        tenure = await core.try_acquire(opened, self._spec)
        return None if tenure is None else AsyncLease(opened, tenure)

    def as_mutex(self) -> AsyncMutex:
        """An object with the methods of `threading.Lock`, for code that wants one."""
        return AsyncMutex(self)

    if not TYPE_CHECKING:  # so that type checkers refuse what these explain at run time

        def __enter__(self) -> NoReturn:
            raise TypeError(_USE_HOLD)

        def __exit__(self, *_: object) -> None:
            """Never reached: `__enter__` raises."""

        async def __aenter__(self) -> NoReturn:
            raise TypeError(_USE_HOLD)

        async def __aexit__(self, *_: object) -> None:
            """Never reached: `__aenter__` raises."""

        def release(self) -> NoReturn:
            """Not here: a lock is shared and holds nothing; the lease is what is released."""
            raise TypeError("a lock carries no state: call release() on the lease that acquire() returned")

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: connections do not travel."""
        raise TypeError("a lock belongs to its client; make one with the same name in the other process")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self._spec.mode} ttl={self.ttl:g}>"

    async def _acquire_until(self, deadline: float | None, how: HowToWait = QUEUE_OR_POLL) -> AsyncLease:
        opened = self._open()
        return AsyncLease(opened, await core.acquire(opened, self._spec, deadline, how))

    def _open(self) -> OpenClient:
        """The client's connection to the store, once this lock is known to be of this process."""
        client = self._client
        opened = client._open()
        if self._process is not client._process:
            self._adopt()
        return opened

    def _acquiring(self, waiting: WaitOptions) -> Callable[[float | None], Awaitable[AsyncLease]]:
        """What acquires until a deadline, in the way that the options say."""
        return partial(self._acquire_until, how=how_to_wait(waiting))

    def _adopt(self) -> None:
        """In a forked child: the holder is this process from now on, not the parent that made the lock."""
        self._spec = replace(self._spec, holder=self._client._holder(self._spec.holder.reason))
        self._process = self._client._process


class AsyncLockSet:
    """Several locks that are taken together, always in the same order, so that two sets cannot block each other."""

    def __init__(self, client: AsyncClient, locks: Sequence[AsyncLock]) -> None:
        self._client = client
        self._locks = tuple(sorted(locks, key=lambda lock: lock.name))

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in the order in which they are taken."""
        return tuple(lock.name for lock in self._locks)

    def hold(
        self,
        timeout: Timeout = ...,
        *,
        on_lost: Callable[[Loss], object] | None = None,
        on_busy: OnBusy = None,
        **waiting: Unpack[WaitOptions],
    ) -> AsyncHold[AsyncLeaseSet]:
        """A context manager that acquires all, runs the block under them, and releases them in reverse order.

        The options are those of a single lock.
        """
        return AsyncHold(self._client, self._acquiring(waiting), timeout, on_lost, on_busy)

    @overload
    async def acquire(
        self, timeout: Timeout = ..., *, on_busy: None = None, **waiting: Unpack[WaitOptions]
    ) -> AsyncLeaseSet: ...
    @overload
    async def acquire(
        self,
        timeout: Timeout = ...,
        *,
        on_busy: Callable[[AcquireTimeout], Awaitable[B]],
        **waiting: Unpack[WaitOptions],
    ) -> AsyncLeaseSet | B: ...
    @overload
    async def acquire(
        self, timeout: Timeout = ..., *, on_busy: Callable[[AcquireTimeout], B], **waiting: Unpack[WaitOptions]
    ) -> AsyncLeaseSet | B: ...
    async def acquire(self, timeout: Timeout = ..., *, on_busy: OnBusy = None, **waiting: Unpack[WaitOptions]) -> Any:
        """Wait for all locks, `timeout` seconds in total; none is kept when one cannot be had.

        The options are those of a single lock; `backoff` and `on_wait` serve each of the locks in turn.
        """
        return await self._client._acquire_or(on_busy, self._acquiring(waiting), timeout)

    def _acquiring(self, waiting: WaitOptions) -> Callable[[float | None], Awaitable[AsyncLeaseSet]]:
        return partial(self._acquire_until, how=how_to_wait(waiting))

    async def _acquire_until(self, deadline: float | None, how: HowToWait = QUEUE_OR_POLL) -> AsyncLeaseSet:
        held: list[AsyncLease] = []
        try:
            for lock in self._locks:
                held.append(await lock._acquire_until(deadline, how))  # noqa: PERF401 - what is held must be known
        except GeneratorExit:
            raise
        except BaseException as error:
            await self._give_back(held, error)
            raise
        return AsyncLeaseSet(held)

    async def try_acquire(self) -> AsyncLeaseSet | None:
        """All leases if all locks are free now, else None."""
        held: list[AsyncLease] = []
        try:
            for lock in self._locks:
                lease = await lock.try_acquire()
                if lease is None:
                    break
                held.append(lease)
        except GeneratorExit:
            raise
        except BaseException as error:
            await self._give_back(held, error)
            raise
        if len(held) == len(self._locks):
            return AsyncLeaseSet(held)
        if held:
            await AsyncLeaseSet(held).release()
        return None

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: connections do not travel."""
        raise TypeError("locks belong to their client; make them with the same names in the other process")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(map(repr, self.names))}>"

    async def _give_back(self, held: list[AsyncLease], error: BaseException) -> None:
        """Undo a half-done acquire; the error that caused it is the one to be seen."""
        if not held:
            return
        try:
            await AsyncLeaseSet(held).release()
        except Exception as failure:  # noqa: BLE001 - the ttl frees what could not be released
            error.add_note(f"leasehold: locks that were already taken could not be released: {failure}")


class AsyncRWLock:
    """Any number of readers or one writer; a waiting writer goes before readers that come after it."""

    def __init__(self, read: AsyncLock, write: AsyncLock) -> None:
        self._read = read
        self._write = write

    @property
    def read(self) -> AsyncLock:
        """The lock that readers share."""
        return self._read

    @property
    def write(self) -> AsyncLock:
        """The lock that a writer has alone."""
        return self._write

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: connections do not travel."""
        raise TypeError("a lock belongs to its client; make one with the same name in the other process")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._write.name!r}>"


class AsyncMutex:
    """The methods of `threading.Lock` on a distributed lock; it may be shared by threads or tasks.

    Code written for a local mutex does not check whether it still holds it. So `release`, and the end of a block, raise
    `LeaseLost` when the lease was lost meanwhile. For the same reason each thread or task releases only what it has
    acquired itself, as with `threading.RLock`: a release that comes late must not free the next holder. What is
    acquired here and released elsewhere is a lease: see `lock.acquire`.
    """

    def __init__(self, lock: AsyncLock) -> None:
        self._lock = lock
        self._held: list[tuple[Hashable, AsyncLease]] = []  # by whom; changed by single calls, so threads may share it

    async def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - their shape
        """Acquire; False when it could not be had. A negative timeout waits for ever."""
        if not blocking:
            lease = await self._lock.try_acquire()
        else:
            lease = await self._wait(None if timeout < 0 else timeout)
        if lease is not None:
            self._held.append((lease._opened.runtime.current(), lease))
        return lease is not None

    async def release(self) -> None:
        """Release what this thread or task acquired last; `LeaseLost` when that was lost.

        RuntimeError when this thread or task does not hold it. After an error of the store it can be called again.
        """
        entry = self._own_entry()
        lease = entry[1]
        loss = lease.loss
        is_held, is_over = lease.remaining() > 0, True
        try:
            if loss is None and not await lease.release() and is_held:
                loss = lease.loss or Loss(LossReason.TAKEN, "the store no longer knew this grant when it was released")
        except BackendError:
            is_over = False
            raise
        finally:
            if is_over:
                self._held.remove(entry)
        if loss is not None:
            raise LeaseLost(
                f"the lease of {lease.name!r} was lost before release ({loss.reason}): {loss.detail}",
                name=lease.name,
                backend=lease._opened.backend.label,
                reason=loss.reason,
                completed=True,
            )

    def locked(self) -> bool:
        """Whether it is held through this object, by any thread or task, by the clock."""
        return any(lease.remaining() > 0 for _, lease in tuple(self._held))

    async def __aenter__(self) -> bool:
        return await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except LeaseLost as lost:
            if error is None:
                raise
            error.add_note(f"leasehold: {lost}")

    def _own_entry(self) -> tuple[Hashable, AsyncLease]:
        """What the running thread or task acquired last through this object."""
        current = self._lock._client._runtime.current()
        for entry in reversed(tuple(self._held)):
            if entry[0] is current:
                return entry
        if self.locked():
            raise RuntimeError(
                f"{self._lock.name!r} is held by another thread or task: a mutex is released where it was acquired. To "
                "release elsewhere, keep the lease that lock.acquire() returns"
            )
        raise RuntimeError(f"release unlocked lock: {self._lock.name!r} is not held through this mutex")

    async def _wait(self, timeout: float | None) -> AsyncLease | None:
        limit = None if timeout is None else seconds(timeout, "timeout")
        try:
            return await self._lock.acquire(limit)
        except AcquireTimeout:
            return None


_USE_HOLD = "a lock carries no state: write `with lock.hold() as lease:` (or `async with`), or call lock.acquire()"
