"""What a program holds while it has a lock: `AsyncLease`, and `AsyncLeaseSet` for several locks at once.

`check`, `remaining` and `lost.is_set` read the clock; they never wait for the store or the keeper.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, NoReturn

from leasehold._core.release import release
from leasehold._core.states import HELD
from leasehold._durations import optional_seconds, seconds
from leasehold._face.hold import Block, lost_error, wait_lost
from leasehold.errors import ConfigurationError, LeaseLost
from leasehold.values import Loss, LossReason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from leasehold._core.open_client import OpenClient
    from leasehold._core.tenure import Tenure, Watcher
    from leasehold._durations import Duration
    from leasehold.values import Holder

__all__ = ["AsyncLease", "AsyncLeaseSet", "AsyncLost"]

_RELEASED = Loss(LossReason.RELEASED, "it was released")


class AsyncLost:
    """Whether and when a lease is lost; true once it is. A lease that was released in time is never lost."""

    def __init__(self, lease: AsyncLease | AsyncLeaseSet) -> None:
        self._lease = lease

    def is_set(self) -> bool:
        """Whether the lease is lost by now, decided by the clock."""
        return self._lease.loss is not None

    def __bool__(self) -> bool:
        return self.is_set()

    async def wait(self, timeout: Duration | None = None) -> bool:
        """Wait until the lease is lost; False if `timeout` passes or the lease is released first."""
        limit = optional_seconds(timeout, "timeout")
        return await wait_lost(self._lease, limit)


class AsyncLease:
    """A lock that is held, until it is released or lost.

    It is its own context manager, which releases at the end of the block and raises `LeaseLost` if it was lost before.
    """

    def __init__(self, opened: OpenClient, tenure: Tenure) -> None:
        self._opened: OpenClient = opened
        self._tenure = tenure
        self._unreleased = True  # this object has not been released; a re-entered lock has several

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._tenure.name

    @property
    def fence(self) -> int:
        """The fencing token of this grant, for ever: also after the loss it is never another holder's number."""
        return self._tenure.grant.fence

    @property
    def ttl(self) -> float:
        """Seconds that the store gives this lease at a time: the ttl of the lock, or what the store made of it.

        Some stores round up, and some cannot give more than their sessions have. After a hand-over it is a short
        time at first; a tenth of a second later, if the lease is still held, a renewal makes it the whole.
        """
        return self._tenure.ttl

    @property
    def holder(self) -> Holder:
        """What is stored about us with the grant."""
        return self._tenure.grant.claim.holder

    @property
    def abandoned(self) -> bool | None:
        """Whether the previous holder left without releasing, so that its work may be half done; None: unknown."""
        return self._tenure.grant.abandoned

    @property
    def lost(self) -> AsyncLost:
        """Whether the lease is lost: `is_set()` and `wait(timeout)`."""
        return AsyncLost(self)

    @property
    def loss(self) -> Loss | None:
        """Why the lease is lost, or None while it is held or after it was released."""
        tenure = self._tenure
        if tenure.state is HELD and self._opened.runtime.now() < tenure.deadline:
            return None
        return self._opened.keeper.decide(tenure)

    def remaining(self) -> float:
        """Seconds for which the lease is surely ours without another answer of the store; 0 when it is over."""
        if not self._unreleased or self._tenure.state is not HELD:
            return 0.0
        return max(0.0, self._tenure.deadline - self._opened.runtime.now())

    def check(self, need: Duration = 0) -> None:
        """Raise `LeaseLost` unless the lease is ours for another `need` seconds; call it before a side effect.

        A `need` that the ttl or the `max_hold` of this lease can never meet is a mistake of the program,
        `ConfigurationError`. It cannot promise that the process is not paused after the check: only a fence at the
        resource helps then.
        """
        margin = seconds(need, "need") if need else 0.0
        if self._unreleased and self._tenure.state is HELD:
            left = self._tenure.deadline - self._opened.runtime.now()
            if left > margin:
                return
            if left > 0:
                raise self._too_short(left, margin)
        self._raise_loss()

    async def renew(self) -> float:
        """Extend the lease now and return the seconds that remain; raises `LeaseLost` when it is over."""
        self._opened.require_home(self.name)
        self.check()
        await self._opened.keeper.renewals.renew_now(self._tenure)
        self.check()
        return self.remaining()

    async def release(self) -> bool:
        """Give the lock back: True if that freed it, False if it was already gone. May be called again.

        It never raises `LeaseLost`. When the store cannot be reached for a second it raises a `BackendError`; the lease
        is then not renewed any more, and the release is tried again, in the background and by another call.
        """
        if not self._unreleased:
            return False
        opened = self._opened
        home = opened.home
        if home is not None and home is not opened.runtime.home():
            opened.require_home(self.name)
        if self._tenure.handles > 1 and self._leave_to_others():
            return True
        freed = await release(opened, self._tenure)
        self._unreleased = False
        return freed

    def _leave_to_others(self) -> bool:
        """Give up this share of a lock that was entered several times; False if it is the last one by now."""
        tenure = self._tenure
        with self._opened.keeper.guard:
            if tenure.handles == 1:
                return False
            tenure.handles -= 1
            self._unreleased = False
        return True

    async def __aenter__(self) -> AsyncLease:
        self._opened.require_home(self.name)
        self.check()
        self._block = Block(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._block.leave(self, error)

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: another process must take the lock itself."""
        raise TypeError("a lease belongs to this process; send lease.fence to the other one, or lock there")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} fence={self.fence} {self._tenure.state.value}>"

    def _too_short(self, left: float, needed: float) -> LeaseLost | ConfigurationError:
        """Why a lease that is held is not enough."""
        tenure, store = self._tenure, self._opened.backend.label
        ttl = max(tenure.ttl, tenure.grant.claim.ttl) if tenure.is_window else tenure.ttl
        most = tenure.trusted_until(0.0, ttl)
        if needed >= tenure.max_hold:
            return ConfigurationError(
                f"check(need={needed:g}) can never pass: {self.name!r} is held for {tenure.max_hold:g} s at most; lock "
                "with a longer max_hold, or need less",
                name=self.name,
                backend=store,
            )
        if needed >= most:
            return ConfigurationError(
                f"check(need={needed:g}) can never pass: {store} gives {self.name!r} a ttl of {ttl:.3g} s, of which at "
                f"most {most:.3g} s are sure; lock with a longer ttl, or need less",
                name=self.name,
                backend=store,
            )
        return LeaseLost(
            f"only {left:.3f} s are left of the lease of {self.name!r}, and {needed:.3f} s are needed; call renew(), "
            "or do not start this step",
            name=self.name,
            backend=store,
            reason=LossReason.EXPIRED,
        )

    def _raise_loss(self) -> NoReturn:
        loss = self.loss or _RELEASED
        for watcher in self._tenure.present_watchers():
            watcher.loss_is_raised()
        raise lost_error(self, loss, completed=False)

    def _is_kept(self) -> bool:
        """Whether the store may still keep it; what only max_hold ended, it would keep for another ttl."""
        loss = self.loss
        return loss is None or loss.reason is LossReason.MAX_HOLD

    def _watch(self, watcher: Watcher) -> None:
        with self._opened.keeper.guard:
            self._tenure.watchers.append(weakref.ref(watcher))

    def _unwatch(self, watcher: Watcher) -> None:
        known = weakref.ref(watcher)  # references to one object are equal while it lives
        with self._opened.keeper.guard:
            if known in self._tenure.watchers:
                self._tenure.watchers.remove(known)


class AsyncLeaseSet:
    """Several locks that are held together; it is over as soon as one of them is."""

    def __init__(self, leases: Sequence[AsyncLease]) -> None:
        self._leases = tuple(leases)

    @property
    def leases(self) -> Mapping[str, AsyncLease]:
        """Each lease by the name of its lock."""
        return {lease.name: lease for lease in self._leases}

    @property
    def fences(self) -> Mapping[str, int]:
        """Each fencing token by the name of its lock: there is no common one, as tokens compare only within a name."""
        return {lease.name: lease.fence for lease in self._leases}

    @property
    def lost(self) -> AsyncLost:
        """Whether one of the leases is lost: `is_set()` and `wait(timeout)`."""
        return AsyncLost(self)

    @property
    def loss(self) -> Loss | None:
        """Why the first lost lease is lost, or None."""
        return next((lease.loss for lease in self._leases if lease.loss is not None), None)

    def remaining(self) -> float:
        """Seconds for which all the leases are surely ours."""
        return min(lease.remaining() for lease in self._leases)

    def check(self, need: Duration = 0) -> None:
        """Raise `LeaseLost` unless all leases are ours for another `need` seconds."""
        for lease in self._leases:
            lease.check(need)

    async def renew(self) -> float:
        """Extend all leases now and return the seconds that remain."""
        for lease in self._leases:
            await lease.renew()
        return self.remaining()

    async def release(self) -> bool:
        """Give all locks back, in reverse order; True if every one was still ours.

        All are tried; an interruption, or else the first error of the store, is raised at the end.
        """
        freed = True
        failure: BaseException | None = None
        for lease in reversed(self._leases):
            try:
                freed = await lease.release() and freed
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001 - the others must be released too
                if failure is None or not isinstance(error, Exception):
                    failure = error
        if failure is not None:
            raise failure
        return freed

    async def __aenter__(self) -> AsyncLeaseSet:
        self._opened.require_home(self.name)
        self.check()
        self._block = Block(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._block.leave(self, error)

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: another process must take the locks itself."""
        raise TypeError("leases belong to this process; send their fences to the other one, or lock there")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(repr(lease.name) for lease in self._leases)}>"

    @property
    def name(self) -> str:
        """The names of the locks, for messages."""
        return ", ".join(lease.name for lease in self._leases)

    @property
    def _opened(self) -> OpenClient:
        return self._leases[0]._opened

    def _is_kept(self) -> bool:
        """Whether there is something to give back: the loss of one lease does not end the others."""
        return any(lease._is_kept() for lease in self._leases)

    def _watch(self, watcher: Watcher) -> None:
        for lease in self._leases:
            lease._watch(watcher)

    def _unwatch(self, watcher: Watcher) -> None:
        for lease in self._leases:
            lease._unwatch(watcher)
