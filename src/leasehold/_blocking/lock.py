"""`Lock`, `LockSet`, `RWLock` and `Mutex`: the blocking twins of `leasehold._face.lock`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, Unpack, overload

from leasehold._blocking.lease import Hold, Lease, LeaseSet
from leasehold._blocking.twin import BlockTwin, Twin
from leasehold._face.lease import AsyncLease, AsyncLeaseSet
from leasehold._face.lock_words import LockWords
from leasehold._runtimes.threads import run

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._face.lock import AsyncLock, AsyncLockSet, AsyncMutex, AsyncRWLock
    from leasehold._face.lock_spec import OnBusy, Timeout, WaitOptions
    from leasehold.errors import AcquireTimeout
    from leasehold.values import Loss

__all__ = ["Lock", "LockSet", "Mutex", "RWLock"]

B = TypeVar("B")


class Lock(Twin, LockWords):
    """A name to be locked, and how: made by `client.lock`, `client.semaphore` or `client.rwlock`."""

    _twin: AsyncLock

    if not TYPE_CHECKING:  # so that type checkers refuse what it explains

        def __init__(self, twin: AsyncLock) -> None:
            if isinstance(twin, str):
                raise TypeError(f"a lock is made by a client: leasehold.connect(url).lock({twin!r})")
            self._twin = twin

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._twin.name

    @property
    def ttl(self) -> float:
        """Seconds after which the lock frees itself when its holder vanishes."""
        return self._twin.ttl

    @property
    def group(self) -> str | None:
        """What this lock counts as in statistics, where its own name would be one of too many."""
        return self._twin.group

    def hold(
        self,
        timeout: Timeout = ...,
        *,
        on_lost: Callable[[Loss], object] | None = None,
        on_busy: OnBusy = None,
        **waiting: Unpack[WaitOptions],
    ) -> Hold[Lease]:
        """A context manager that acquires, runs the block under the lease, and releases.

        On loss `lost` is set, and `on_lost(loss)` is called by another thread, where it may take its time. The block
        then ends with `LeaseLost`. An exception of the block itself is never hidden. `backoff` and `on_wait` are those
        of `acquire`. When the lock cannot be had, `on_busy(error)` is called before the `AcquireTimeout` is raised: a
        block cannot be skipped. What it raises itself is raised instead.
        """
        if on_busy is None and not waiting:
            return Hold(self._twin.hold(timeout, on_lost=on_lost), Lease._of)
        return Hold(self._twin.hold(timeout, on_lost=on_lost, on_busy=on_busy, **waiting), Lease._of)

    @overload
    def acquire(self, timeout: Timeout = ..., *, on_busy: None = None, **waiting: Unpack[WaitOptions]) -> Lease: ...
    @overload
    def acquire(
        self, timeout: Timeout = ..., *, on_busy: Callable[[AcquireTimeout], B], **waiting: Unpack[WaitOptions]
    ) -> Lease | B: ...
    def acquire(self, timeout: Timeout = ..., *, on_busy: OnBusy = None, **waiting: Unpack[WaitOptions]) -> Any:
        """Wait for the lock at most `timeout` seconds and return the lease; None waits for ever.

        Raises `AcquireTimeout` when the time is over, and a `BackendError` when the store cannot be reached. With
        `on_busy`, what is returned instead of an `AcquireTimeout` is the result of `on_busy(error)`.

        `backoff`: do not queue, but try again after each pause of this `Backoff`, until `timeout` or until its tries
        are used up. `on_wait(position, holder, waited)` is called when the wait begins and then every second, in the
        waiting thread: the place in the queue (1 is next; None where there is no queue), who has the lock, as far as it
        is known, and the seconds so far. What it raises ends the wait.
        """
        if on_busy is None and not waiting:
            return Lease._of(run(self._twin._acquire_until(self._twin._client._deadline(timeout))))
        twin = run(self._twin.acquire(timeout, on_busy=on_busy, **waiting))
        return Lease._of(twin) if isinstance(twin, AsyncLease) else twin

    def try_acquire(self) -> Lease | None:
        """The lease if the lock is free now, else None."""
        twin = run(self._twin.try_acquire())
        return None if twin is None else Lease._of(twin)

    def as_mutex(self) -> Mutex:
        """An object with the methods of `threading.Lock`, for code that wants one."""
        return Mutex._of(self._twin.as_mutex())

    if not TYPE_CHECKING:  # so that type checkers refuse what these explain at run time

        def __enter__(self) -> NoReturn:
            self._twin.__enter__()

        def __exit__(self, *_: object) -> None:
            """Never reached: `__enter__` raises."""

        def release(self) -> NoReturn:
            """Not here: a lock is shared and holds nothing; the lease is what is released."""
            self._twin.release()


class LockSet(Twin):
    """Several locks that are taken together, always in the same order, so that two sets cannot block each other."""

    _twin: AsyncLockSet

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in the order in which they are taken."""
        return self._twin.names

    def hold(
        self,
        timeout: Timeout = ...,
        *,
        on_lost: Callable[[Loss], object] | None = None,
        on_busy: OnBusy = None,
        **waiting: Unpack[WaitOptions],
    ) -> Hold[LeaseSet]:
        """A context manager that acquires all, runs the block under them, and releases them in reverse order.

        The options are those of a single lock.
        """
        if on_busy is None and not waiting:
            return Hold(self._twin.hold(timeout, on_lost=on_lost), LeaseSet._of)
        return Hold(self._twin.hold(timeout, on_lost=on_lost, on_busy=on_busy, **waiting), LeaseSet._of)

    @overload
    def acquire(self, timeout: Timeout = ..., *, on_busy: None = None, **waiting: Unpack[WaitOptions]) -> LeaseSet: ...
    @overload
    def acquire(
        self, timeout: Timeout = ..., *, on_busy: Callable[[AcquireTimeout], B], **waiting: Unpack[WaitOptions]
    ) -> LeaseSet | B: ...
    def acquire(self, timeout: Timeout = ..., *, on_busy: OnBusy = None, **waiting: Unpack[WaitOptions]) -> Any:
        """Wait for all locks, `timeout` seconds in total; none is kept when one cannot be had.

        The options are those of a single lock; `backoff` and `on_wait` serve each of the locks in turn.
        """
        if on_busy is None and not waiting:
            return LeaseSet._of(run(self._twin.acquire(timeout)))
        twin = run(self._twin.acquire(timeout, on_busy=on_busy, **waiting))
        return LeaseSet._of(twin) if isinstance(twin, AsyncLeaseSet) else twin

    def try_acquire(self) -> LeaseSet | None:
        """All leases if all locks are free now, else None."""
        twin = run(self._twin.try_acquire())
        return None if twin is None else LeaseSet._of(twin)


class RWLock(Twin):
    """Any number of readers or one writer; a waiting writer goes before readers that come after it."""

    _twin: AsyncRWLock

    @property
    def read(self) -> Lock:
        """The lock that readers share."""
        return Lock._of(self._twin.read)

    @property
    def write(self) -> Lock:
        """The lock that a writer has alone."""
        return Lock._of(self._twin.write)


class Mutex(BlockTwin):
    """The methods of `threading.Lock` on a distributed lock; it may be shared by threads.

    Code written for a local mutex does not check whether it still holds it. So `release`, and the end of a block, raise
    `LeaseLost` when the lease was lost meanwhile. For the same reason each thread releases only what it has acquired
    itself, as with `threading.RLock`: a release that comes late must not free the next holder. What is acquired here
    and released elsewhere is a lease: see `lock.acquire`.
    """

    _twin: AsyncMutex

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - their shape
        """Acquire; False when it could not be had. A negative timeout waits for ever."""
        return run(self._twin.acquire(blocking, timeout))

    def release(self) -> None:
        """Release what this thread acquired last; `LeaseLost` when that was lost.

        RuntimeError when this thread does not hold it. After an error of the store it can be called again.
        """
        run(self._twin.release())

    def locked(self) -> bool:
        """Whether it is held through this object, by any thread, by the clock."""
        return self._twin.locked()

    def __enter__(self) -> bool:
        return run(self._twin.__aenter__())
