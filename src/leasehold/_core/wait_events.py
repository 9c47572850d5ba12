"""Events of calls that want a lock and do not get it at once; `leasehold.events` passes them on with the others.

Every call that wants a lock ends with one of `Acquired`, `TimedOut`, `Refused` and `AcquireFailed`. One that had to
wait has a `WaitBegan` before that, with the same `call`.
"""

from __future__ import annotations

from leasehold._core.events import Event
from leasehold._record import record

__all__ = ["AcquireFailed", "Refused", "WaitBegan"]


@record(frozen=True, slots=True)
class WaitBegan(Event):
    """A call begins to wait: the lock is not free, or the store does not answer. `call` is in the event of its end."""

    group: str | None
    mode: str
    call: int

    def __str__(self) -> str:
        return f"a call begins to wait for {self.name!r}"


@record(frozen=True, slots=True)
class Refused(Event):
    """A call that does not wait did not get the lock."""

    waited: float
    group: str | None = None
    mode: str = "exclusive"
    call: int = 0

    def __str__(self) -> str:
        return f"{self.name!r} is not free"


@record(frozen=True, slots=True)
class AcquireFailed(Event):
    """A call that wanted a lock ended by an error, or was interrupted (`cancelled`), such as a cancelled task."""

    waited: float
    error: str
    cancelled: bool
    group: str | None = None
    mode: str = "exclusive"
    call: int = 0

    def __str__(self) -> str:
        return f"did not get {self.name!r} after {self.waited:.3f} s: {self.error}"
