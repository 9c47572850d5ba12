"""`Share` and `Partition`: the blocking twins of `leasehold.patterns.partitions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from leasehold._runtimes.threads import run
from leasehold.blocking._mirror import mirrors
from leasehold.blocking.lease import Lease, Lost
from leasehold.patterns.partition import AsyncPartition
from leasehold.patterns.partitions import AsyncShare

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from leasehold.durations import Duration

__all__ = ["Partition", "Share"]


@mirrors(AsyncPartition)
class Partition:
    def __init__(self, twin: AsyncPartition) -> None:
        self._twin = twin

    @property
    @mirrors(AsyncPartition.index)
    def index(self) -> int:
        return self._twin.index

    @property
    @mirrors(AsyncPartition.name)
    def name(self) -> str:
        return self._twin.name

    @property
    @mirrors(AsyncPartition.fence)
    def fence(self) -> int:
        return self._twin.fence

    @property
    @mirrors(AsyncPartition.lease)
    def lease(self) -> Lease:
        return Lease(self._twin.lease)

    @property
    @mirrors(AsyncPartition.lost)
    def lost(self) -> Lost:
        return Lost(self._twin.lost)

    @property
    @mirrors(AsyncPartition.leaving)
    def leaving(self) -> bool:
        return self._twin.leaving

    @mirrors(AsyncPartition.check)
    def check(self, need: Duration = 0) -> None:
        self._twin.check(need)

    @mirrors(AsyncPartition.release)
    def release(self) -> bool:
        return run(self._twin.release())

    def __eq__(self, other: object) -> bool:
        return self._twin == other._twin if isinstance(other, Partition) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._twin)

    @mirrors(AsyncPartition.__reduce__)
    def __reduce__(self) -> NoReturn:
        self._twin.__reduce__()

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncPartition", "Partition")


@mirrors(AsyncShare)
class Share:
    def __init__(self, twin: AsyncShare) -> None:
        self._twin = twin

    @property
    @mirrors(AsyncShare.name)
    def name(self) -> str:
        return self._twin.name

    @property
    @mirrors(AsyncShare.count)
    def count(self) -> int:
        return self._twin.count

    @property
    @mirrors(AsyncShare.members)
    def members(self) -> int:
        return self._twin.members

    @mirrors(AsyncShare.owned)
    def owned(self) -> Sequence[Partition]:
        return tuple(map(Partition, self._twin.owned()))

    @mirrors(AsyncShare.wait_change)
    def wait_change(self, timeout: Duration | None = None) -> bool:
        return run(self._twin.wait_change(timeout))

    @mirrors(AsyncShare.leave)
    def leave(self, timeout: Duration = 0) -> None:
        run(self._twin.leave(timeout))

    def __enter__(self) -> Share:
        run(self._twin.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._twin.__aexit__(kind, error, trace))

    @mirrors(AsyncShare.__reduce__)
    def __reduce__(self) -> NoReturn:
        self._twin.__reduce__()

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncShare", "Share")
