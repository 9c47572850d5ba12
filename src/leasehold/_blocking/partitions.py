"""`Share` and `Partition`: the blocking twins of `leasehold._patterns.partitions`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._blocking.lease import Lease, Lost
from leasehold._blocking.twin import SelfBlockTwin, Twin
from leasehold._runtimes.threads import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._durations import Duration
    from leasehold._patterns.partition import AsyncPartition
    from leasehold._patterns.partitions import AsyncShare

__all__ = ["Partition", "Share"]


class Partition(Twin):
    """A partition that is ours until we release it or lose it. Two objects are equal if they are the same grant."""

    _twin: AsyncPartition

    @property
    def index(self) -> int:
        """Which partition it is, from 0 to count - 1."""
        return self._twin.index

    @property
    def name(self) -> str:
        """The name of its lock, as in `orders/17`."""
        return self._twin.name

    @property
    def fence(self) -> int:
        """The fencing token: every later owner of this partition has a higher one."""
        return self._twin.fence

    @property
    def lease(self) -> Lease:
        """The lease of its lock, for the guards of `leasehold.sql` and `leasehold.fencing`."""
        return Lease._of(self._twin.lease)

    @property
    def lost(self) -> Lost:
        """Whether it is lost, so that another member may own it: `is_set()` and `wait(timeout)`."""
        return Lost._of(self._twin.lost)

    @property
    def leaving(self) -> bool:
        """Whether it shall go to another member: finish what you are doing with it, and call `release`."""
        return self._twin.leaving

    def check(self, need: Duration = 0) -> None:
        """Raise `LeaseLost` unless it is ours for another `need` seconds; call it before a side effect."""
        self._twin.check(need)

    def release(self) -> bool:
        """Give it back: True if that freed it, False if it was already gone. May be called again.

        False, too, if the store does not answer: the release is then tried again in the background, until the ttl frees
        it. One that is not leaving is taken again with the next look, unless another member is due more than it has.
        """
        return run(self._twin.release())

    def __eq__(self, other: object) -> bool:
        return self._twin == other._twin if isinstance(other, Partition) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._twin)


class Share(SelfBlockTwin):
    """This member's share of the partitions, made by `client.partitions`; good for one block."""

    _twin: AsyncShare

    @property
    def name(self) -> str:
        """The name under which all members share."""
        return self._twin.name

    @property
    def count(self) -> int:
        """How many partitions there are."""
        return self._twin.count

    @property
    def members(self) -> int:
        """How many members there were when we looked last, this one included."""
        return self._twin.members

    def owned(self) -> Sequence[Partition]:
        """The partitions that are ours now, decided by the clock, in order of index; also those that are leaving.

        Look again after each round of work, and release those that are `leaving`: another member waits for them.
        """
        return tuple(map(Partition._of, self._twin.owned()))

    def wait_change(self, timeout: Duration | None = None) -> bool:
        """Wait until `owned` has changed since it was last called: one more, one less, or one that is leaving.

        False if `timeout` passes first, or when the share is over.
        """
        return run(self._twin.wait_change(timeout))

    def leave(self, timeout: Duration = 0) -> None:
        """Stop being a member and give all partitions back; may be called twice. The end of the block does it too.

        With a `timeout` all partitions are announced as leaving, and their workers get so long to release them; other
        members take each as soon as it is free. What the store does not confirm is free when its ttl is over.
        """
        run(self._twin.leave(timeout))
