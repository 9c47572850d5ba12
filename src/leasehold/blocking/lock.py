"""`Lock`, `LockSet`, `RWLock` and `Mutex`: the blocking twins of `leasehold.lock`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, Unpack, overload

from leasehold._runtimes.threads import run
from leasehold.blocking._mirror import mirrors
from leasehold.blocking.lease import Hold, Lease, LeaseSet
from leasehold.lease import AsyncLease, AsyncLeaseSet
from leasehold.lock import AsyncLock, AsyncLockSet, AsyncMutex, AsyncRWLock

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from leasehold.errors import AcquireTimeout
    from leasehold.lock_spec import OnBusy, Timeout, WaitOptions
    from leasehold.values import Loss

__all__ = ["Lock", "LockSet", "Mutex", "RWLock"]

B = TypeVar("B")


@mirrors(AsyncLock)
class Lock:
    def __init__(self, twin: AsyncLock) -> None:
        self._twin = twin

    @property
    @mirrors(AsyncLock.name)
    def name(self) -> str:
        return self._twin.name

    @property
    @mirrors(AsyncLock.ttl)
    def ttl(self) -> float:
        return self._twin.ttl

    @property
    @mirrors(AsyncLock.group)
    def group(self) -> str | None:
        return self._twin.group

    @mirrors(AsyncLock.hold)
    def hold(
        self,
        timeout: Timeout = ...,
        *,
        on_lost: Callable[[Loss], object] | None = None,
        on_busy: OnBusy = None,
        **waiting: Unpack[WaitOptions],
    ) -> Hold[Lease]:
        if on_busy is None and not waiting:
            return Hold(self._twin.hold(timeout, on_lost=on_lost), Lease)
        return Hold(self._twin.hold(timeout, on_lost=on_lost, on_busy=on_busy, **waiting), Lease)

    @overload
    def acquire(self, timeout: Timeout = ..., *, on_busy: None = None, **waiting: Unpack[WaitOptions]) -> Lease: ...
    @overload
    def acquire(
        self, timeout: Timeout = ..., *, on_busy: Callable[[AcquireTimeout], B], **waiting: Unpack[WaitOptions]
    ) -> Lease | B: ...
    @mirrors(AsyncLock.acquire)
    def acquire(self, timeout: Timeout = ..., *, on_busy: OnBusy = None, **waiting: Unpack[WaitOptions]) -> Any:
        if on_busy is None and not waiting:
            return Lease(run(self._twin._acquire_until(self._twin._client._deadline(timeout))))
        twin = run(self._twin.acquire(timeout, on_busy=on_busy, **waiting))
        return Lease(twin) if isinstance(twin, AsyncLease) else twin

    @mirrors(AsyncLock.try_acquire)
    def try_acquire(self) -> Lease | None:
        twin = run(self._twin.try_acquire())
        return None if twin is None else Lease(twin)

    @mirrors(AsyncLock.as_mutex)
    def as_mutex(self) -> Mutex:
        return Mutex(self._twin.as_mutex())

    def __enter__(self) -> NoReturn:
        self._twin.__enter__()

    def __exit__(self, *_: object) -> None:
        """Never reached: `__enter__` raises."""

    @mirrors(AsyncLock.release)
    def release(self) -> NoReturn:
        self._twin.release()

    @mirrors(AsyncLock.__reduce__)
    def __reduce__(self) -> NoReturn:
        self._twin.__reduce__()

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncLock", "Lock")


@mirrors(AsyncLockSet)
class LockSet:
    def __init__(self, twin: AsyncLockSet) -> None:
        self._twin = twin

    @property
    @mirrors(AsyncLockSet.names)
    def names(self) -> tuple[str, ...]:
        return self._twin.names

    @mirrors(AsyncLockSet.hold)
    def hold(
        self,
        timeout: Timeout = ...,
        *,
        on_lost: Callable[[Loss], object] | None = None,
        on_busy: OnBusy = None,
        **waiting: Unpack[WaitOptions],
    ) -> Hold[LeaseSet]:
        if on_busy is None and not waiting:
            return Hold(self._twin.hold(timeout, on_lost=on_lost), LeaseSet)
        return Hold(self._twin.hold(timeout, on_lost=on_lost, on_busy=on_busy, **waiting), LeaseSet)

    @overload
    def acquire(self, timeout: Timeout = ..., *, on_busy: None = None, **waiting: Unpack[WaitOptions]) -> LeaseSet: ...
    @overload
    def acquire(
        self, timeout: Timeout = ..., *, on_busy: Callable[[AcquireTimeout], B], **waiting: Unpack[WaitOptions]
    ) -> LeaseSet | B: ...
    @mirrors(AsyncLockSet.acquire)
    def acquire(self, timeout: Timeout = ..., *, on_busy: OnBusy = None, **waiting: Unpack[WaitOptions]) -> Any:
        if on_busy is None and not waiting:
            return LeaseSet(run(self._twin.acquire(timeout)))
        twin = run(self._twin.acquire(timeout, on_busy=on_busy, **waiting))
        return LeaseSet(twin) if isinstance(twin, AsyncLeaseSet) else twin

    @mirrors(AsyncLockSet.try_acquire)
    def try_acquire(self) -> LeaseSet | None:
        twin = run(self._twin.try_acquire())
        return None if twin is None else LeaseSet(twin)

    @mirrors(AsyncLockSet.__reduce__)
    def __reduce__(self) -> NoReturn:
        self._twin.__reduce__()

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncLockSet", "LockSet")


@mirrors(AsyncRWLock)
class RWLock:
    def __init__(self, twin: AsyncRWLock) -> None:
        self._twin = twin

    @property
    @mirrors(AsyncRWLock.read)
    def read(self) -> Lock:
        return Lock(self._twin.read)

    @property
    @mirrors(AsyncRWLock.write)
    def write(self) -> Lock:
        return Lock(self._twin.write)

    @mirrors(AsyncRWLock.__reduce__)
    def __reduce__(self) -> NoReturn:
        self._twin.__reduce__()

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncRWLock", "RWLock")


@mirrors(AsyncMutex)
class Mutex:
    def __init__(self, twin: AsyncMutex) -> None:
        self._twin = twin

    @mirrors(AsyncMutex.acquire)
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - their shape
        return run(self._twin.acquire(blocking, timeout))

    @mirrors(AsyncMutex.release)
    def release(self) -> None:
        run(self._twin.release())

    @mirrors(AsyncMutex.locked)
    def locked(self) -> bool:
        return self._twin.locked()

    def __enter__(self) -> bool:
        return run(self._twin.__aenter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._twin.__aexit__(kind, error, trace))
