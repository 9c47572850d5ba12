"""What happens to idempotency keys, as typed events."""

from __future__ import annotations

from typing import ClassVar

from leasehold._core.events import Event
from leasehold._log import WARNING
from leasehold._record import record

__all__ = ["Completed", "KeyRefused", "NotRecorded", "Replayed", "Unprotected"]


@record(frozen=True, slots=True)
class Completed(Event):
    """The work of a key was done, and its result is stored."""

    fence: int

    def __str__(self) -> str:
        return f"completed {self.name!r}, with fence {self.fence}"


@record(frozen=True, slots=True)
class KeyRefused(Event):
    """An attempt was refused: `in_progress`, `mismatch` (another payload), `expired`, or `missing` (no key)."""

    why: str

    def __str__(self) -> str:
        return f"refused an attempt at {self.name!r}: {self.why}"


@record(frozen=True, slots=True)
class Replayed(Event):
    """A key was completed before, so its result was replayed and nothing was run."""

    def __str__(self) -> str:
        return f"replayed the result of {self.name!r}"


@record(frozen=True, slots=True)
class Unprotected(Event):
    """The store did not answer, and outage="open" let an attempt run without protection."""

    level: ClassVar[int] = WARNING

    error: str

    def __str__(self) -> str:
        return f"{self.name!r} runs without protection, because the store did not answer: {self.error}"


@record(frozen=True, slots=True)
class NotRecorded(Event):
    """The end of an attempt could not be recorded: its key counts as one whose holder has vanished."""

    level: ClassVar[int] = WARNING

    error: str

    def __str__(self) -> str:
        return f"the end of the attempt at {self.name!r} may not be recorded: {self.error}"
