"""What happens to the values of a cache, as typed events."""

from __future__ import annotations

from typing import ClassVar

from leasehold._core.events import Event
from leasehold._log import WARNING
from leasehold._record import record

__all__ = ["BuildFailed", "Built", "CacheRead", "FillFailed", "FillRefused"]


@record(frozen=True, slots=True)
class CacheRead(Event):
    """A value was asked for. `found`: `hit`, `miss`, or one that is due, `early` or `stale`, and built by one."""

    cache: str
    found: str

    def __str__(self) -> str:
        return f"read {self.name!r}: {self.found}"


@record(frozen=True, slots=True)
class Built(Event):
    """A value of a cache was built, and is stored."""

    fence: int
    took: float

    def __str__(self) -> str:
        return f"built {self.name!r} in {self.took:.3f} s, with fence {self.fence}"


@record(frozen=True, slots=True)
class BuildFailed(Event):
    """Building a value of a cache raised; `served`: the value before it was given out instead.

    The text has only the kind of the error: its message may hold what does not belong into a log.
    """

    level: ClassVar[int] = WARNING

    error: Exception
    served: bool

    def __str__(self) -> str:
        instead = "; the value before it is given out" if self.served else ""
        return f"building {self.name!r} failed with {type(self.error).__name__}{instead}"


@record(frozen=True, slots=True)
class FillRefused(Event):
    """A value of a cache was not stored: it was built again, put or forgotten while this builder was at work."""

    level: ClassVar[int] = WARNING

    fence: int

    def __str__(self) -> str:
        return f"{self.name!r} was not stored under fence {self.fence}: it was changed while it was being built"


@record(frozen=True, slots=True)
class FillFailed(Event):
    """A value of a cache was built and given out, but may not be stored, so that it will be built again."""

    level: ClassVar[int] = WARNING

    reason: str

    def __str__(self) -> str:
        return f"{self.name!r} was built, but may not be stored: {self.reason}"
