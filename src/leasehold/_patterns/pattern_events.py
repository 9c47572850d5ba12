"""What happens to elections, partitions and jobs, as typed events."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from leasehold._core.events import Event
from leasehold._log import INFO
from leasehold._record import record

if TYPE_CHECKING:
    from leasehold.values import Skipped

__all__ = ["Campaigning", "Elected", "PartitionTaken", "RunEnded", "RunSkipped"]


@record(frozen=True, slots=True)
class Campaigning(Event):
    """A candidate wants to lead."""

    group: str | None

    def __str__(self) -> str:
        return f"a candidate for {self.name!r} begins its campaign"


@record(frozen=True, slots=True)
class Elected(Event):
    """A candidate leads from now on, until the lease with this fence is released or lost."""

    level: ClassVar[int] = INFO

    fence: int
    group: str | None

    def __str__(self) -> str:
        return f"elected as the leader of {self.name!r}, with fence {self.fence}"


@record(frozen=True, slots=True)
class PartitionTaken(Event):
    """A member owns a partition of `share` from now on, until the lease with this fence is released or lost."""

    share: str
    index: int
    fence: int

    def __str__(self) -> str:
        return f"took partition {self.index} of {self.share!r}, with fence {self.fence}"


@record(frozen=True, slots=True)
class RunEnded(Event):
    """A run of a `once` job ended. `failed`: by an error, or by its own account; `recorded`: the store knows of it."""

    job: str
    slot: str
    fence: int
    took: float
    failed: bool
    recorded: bool

    def __str__(self) -> str:
        how = "failed" if self.failed else "ended"
        known = "" if self.recorded else ", and may not be recorded"
        return f"the run of {self.name!r} for slot {self.slot} {how} after {self.took:.3f} s{known}"


@record(frozen=True, slots=True)
class RunSkipped(Event):
    """A `once` job was not run, because its slot is another's."""

    level: ClassVar[int] = INFO

    skipped: Skipped
    job: str = ""

    def __str__(self) -> str:
        return str(self.skipped)
