"""One partition that is ours: a lock of its own, with its fence. The async face, which is the core face."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from leasehold.errors import BackendError, ClientClosed
from leasehold.values import Loss, LossReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._durations import Duration
    from leasehold._face.lease import AsyncLease, AsyncLost

__all__ = ["AsyncPartition"]

_GRACE_IS_OVER = Loss(
    LossReason.MAX_HOLD, "it had to go to another member, and its worker did not release it within the grace time"
)


class AsyncPartition:
    """A partition that is ours until we release it or lose it. Two objects are equal if they are the same grant."""

    def __init__(self, index: int, lease: AsyncLease, forget: Callable[[AsyncPartition], None]) -> None:
        self._index = index
        self._lease = lease
        self._forget = forget
        self._leave_by: float | None = None  # when it is taken from a worker that has not released it; None: it stays

    @property
    def index(self) -> int:
        """Which partition it is, from 0 to count - 1."""
        return self._index

    @property
    def name(self) -> str:
        """The name of its lock, as in `orders/17`."""
        return self._lease.name

    @property
    def fence(self) -> int:
        """The fencing token: every later owner of this partition has a higher one."""
        return self._lease.fence

    @property
    def lease(self) -> AsyncLease:
        """The lease of its lock, for the guards of `leasehold.sql` and `leasehold.fencing`."""
        return self._lease

    @property
    def lost(self) -> AsyncLost:
        """Whether it is lost, so that another member may own it: `is_set()` and `wait(timeout)`."""
        return self._lease.lost

    @property
    def leaving(self) -> bool:
        """Whether it shall go to another member: finish what you are doing with it, and call `release`."""
        return self._leave_by is not None

    def check(self, need: Duration = 0) -> None:
        """Raise `LeaseLost` unless it is ours for another `need` seconds; call it before a side effect."""
        self._lease.check(need)

    async def release(self) -> bool:
        """Give it back: True if that freed it, False if it was already gone. May be called again.

        False, too, if the store does not answer: the release is then tried again in the background, until the ttl frees
        it. One that is not leaving is taken again with the next look, unless another member is due more than it has.
        """
        try:
            return await self._lease.release()
        except (BackendError, ClientClosed):
            return False
        finally:
            self._forget(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AsyncPartition):
            return NotImplemented
        return (self.name, self.fence) == (other.name, other.fence)

    def __hash__(self) -> int:
        return hash((self.name, self.fence))

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: another process must join as a member itself."""
        raise TypeError("a partition belongs to this process; send its fence to the other one, or join there")

    def __repr__(self) -> str:
        leaving = " leaving" if self.leaving else ""
        return f"<{type(self).__name__} {self.name!r} fence={self.fence}{leaving}>"

    def _is_ours(self) -> bool:
        return self._lease.remaining() > 0

    async def _take_away(self) -> None:
        """Release it although its worker has not: the worker sees a loss, and never an end that it had asked for."""
        self._lease._opened.keeper.lose(self._lease._tenure, _GRACE_IS_OVER)
        await self.release()
