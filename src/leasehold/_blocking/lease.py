"""`Lease`, `LeaseSet`, `Lost` and `Hold`: the blocking twins of `leasehold._face.lease` and `leasehold._face.hold`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from leasehold._blocking.twin import SelfBlockTwin, Twin
from leasehold._runtimes.threads import run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from leasehold._durations import Duration
    from leasehold._face.hold import AsyncHold
    from leasehold._face.lease import AsyncLease, AsyncLeaseSet, AsyncLost
    from leasehold.values import Holder, Loss

__all__ = ["Hold", "Lease", "LeaseSet", "Lost"]

L = TypeVar("L")


class Lost(Twin):
    """Whether and when a lease is lost; true once it is. A lease that was released in time is never lost."""

    _twin: AsyncLost

    def is_set(self) -> bool:
        """Whether the lease is lost by now, decided by the clock."""
        return self._twin.is_set()

    def __bool__(self) -> bool:
        return self._twin.is_set()

    def wait(self, timeout: Duration | None = None) -> bool:
        """Wait until the lease is lost; False if `timeout` passes or the lease is released first."""
        return run(self._twin.wait(timeout))


class Lease(SelfBlockTwin):
    """A lock that is held, until it is released or lost.

    It is its own context manager, which releases at the end of the block and raises `LeaseLost` if it was lost before.
    """

    _twin: AsyncLease

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._twin.name

    @property
    def fence(self) -> int:
        """The fencing token of this grant, for ever: also after the loss it is never another holder's number."""
        return self._twin.fence

    @property
    def ttl(self) -> float:
        """Seconds that the store gives this lease at a time: the ttl of the lock, or what the store made of it.

        Some stores round up, and some cannot give more than their sessions have. After a hand-over it is a short time
        at first; a tenth of a second later, if the lease is still held, a renewal makes it the whole.
        """
        return self._twin.ttl

    @property
    def holder(self) -> Holder:
        """What is stored about us with the grant."""
        return self._twin.holder

    @property
    def abandoned(self) -> bool | None:
        """Whether the previous holder left without releasing, so that its work may be half done; None: unknown."""
        return self._twin.abandoned

    @property
    def lost(self) -> Lost:
        """Whether the lease is lost: `is_set()` and `wait(timeout)`."""
        return Lost._of(self._twin.lost)

    @property
    def loss(self) -> Loss | None:
        """Why the lease is lost, or None while it is held or after it was released."""
        return self._twin.loss

    def remaining(self) -> float:
        """Seconds for which the lease is surely ours without another answer of the store; 0 when it is over."""
        return self._twin.remaining()

    def check(self, need: Duration = 0) -> None:
        """Raise `LeaseLost` unless the lease is ours for another `need` seconds; call it before a side effect.

        A `need` that the ttl or the `max_hold` of this lease can never meet is a mistake of the program,
        `ConfigurationError`. It cannot promise that the process is not paused after the check: only a fence at the
        resource helps then.
        """
        self._twin.check(need)

    def renew(self) -> float:
        """Extend the lease now and return the seconds that remain; raises `LeaseLost` when it is over."""
        return run(self._twin.renew())

    def release(self) -> bool:
        """Give the lock back: True if that freed it, False if it was already gone. May be called again.

        It never raises `LeaseLost`. When the store cannot be reached for a second it raises a `BackendError`; the lease
        is then not renewed any more, and the release is tried again, in the background and by another call.
        """
        return run(self._twin.release())


class LeaseSet(SelfBlockTwin):
    """Several locks that are held together; it is over as soon as one of them is."""

    _twin: AsyncLeaseSet

    @property
    def name(self) -> str:
        """The names of the locks, for messages."""
        return self._twin.name

    @property
    def leases(self) -> Mapping[str, Lease]:
        """Each lease by the name of its lock."""
        return {name: Lease._of(lease) for name, lease in self._twin.leases.items()}

    @property
    def fences(self) -> Mapping[str, int]:
        """Each fencing token by the name of its lock: there is no common one, as tokens compare only within a name."""
        return self._twin.fences

    @property
    def lost(self) -> Lost:
        """Whether one of the leases is lost: `is_set()` and `wait(timeout)`."""
        return Lost._of(self._twin.lost)

    @property
    def loss(self) -> Loss | None:
        """Why the first lost lease is lost, or None."""
        return self._twin.loss

    def remaining(self) -> float:
        """Seconds for which all the leases are surely ours."""
        return self._twin.remaining()

    def check(self, need: Duration = 0) -> None:
        """Raise `LeaseLost` unless all leases are ours for another `need` seconds."""
        self._twin.check(need)

    def renew(self) -> float:
        """Extend all leases now and return the seconds that remain."""
        return run(self._twin.renew())

    def release(self) -> bool:
        """Give all locks back, in reverse order; True if every one was still ours.

        All are tried; an interruption, or else the first error of the store, is raised at the end.
        """
        return run(self._twin.release())


class Hold(Generic[L]):
    """Takes a lock for a block: `with lock.hold() as lease`. The body never runs without the lock."""

    def __init__(self, twin: AsyncHold[Any], wrap: Callable[[Any], L]) -> None:
        self._twin = twin
        self._wrap = wrap

    def __enter__(self) -> L:
        return self._wrap(run(self._twin.__aenter__()))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._twin.__aexit__(kind, error, trace))
