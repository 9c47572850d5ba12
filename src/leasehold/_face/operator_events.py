"""Events of what operators do to names and jobs; `leasehold.events` passes them on with the others."""

from __future__ import annotations

from typing import ClassVar

from leasehold._core.events import Event
from leasehold._log import WARNING
from leasehold._record import record

__all__ = ["Broken", "NamePaused", "NameResumed", "RunAgain", "RunForgotten"]


@record(frozen=True, slots=True)
class Broken(Event):
    """An operator broke a lock."""

    level: ClassVar[int] = WARNING

    fence: int
    reason: str
    by: str

    def __str__(self) -> str:
        return f"{self.by} broke {self.name!r} with fence {self.fence}: {self.reason}"


@record(frozen=True, slots=True)
class RunAgain(Event):
    """A slot of a `once` job is run once more, by an operator's order."""

    level: ClassVar[int] = WARNING

    slot: str
    fence: int
    reason: str
    by: str

    def __str__(self) -> str:
        return f"{self.by} runs {self.name!r} again for slot {self.slot}, with fence {self.fence}: {self.reason}"


@record(frozen=True, slots=True)
class RunForgotten(Event):
    """An operator dropped the record of a slot of a `once` job, so that it can run again."""

    level: ClassVar[int] = WARNING

    slot: str
    reason: str
    by: str

    def __str__(self) -> str:
        return f"{self.by} made {self.name!r} forget its run for slot {self.slot}: {self.reason}"


@record(frozen=True, slots=True)
class NamePaused(Event):
    """An operator paused a name: it is not granted until it is resumed, or for `seconds`."""

    level: ClassVar[int] = WARNING

    reason: str
    by: str
    seconds: float | None

    def __str__(self) -> str:
        time = "" if self.seconds is None else f" for {self.seconds:g} s"
        return f"{self.by} paused {self.name!r}{time}: {self.reason}"


@record(frozen=True, slots=True)
class NameResumed(Event):
    """An operator resumed a name."""

    level: ClassVar[int] = WARNING

    by: str

    def __str__(self) -> str:
        return f"{self.by} resumed {self.name!r}"
