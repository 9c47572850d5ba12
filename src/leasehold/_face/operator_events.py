"""Events of what operators do to names and jobs; `leasehold.events` passes them on with the others."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import ClassVar

from leasehold._core.events import Event

__all__ = ["NamePaused", "NameResumed", "RunAgain", "RunForgotten"]


@dataclass(frozen=True, slots=True)
class RunAgain(Event):
    """A slot of a `once` job is run once more, by an operator's order."""

    level: ClassVar[int] = logging.WARNING

    slot: str
    fence: int
    reason: str
    by: str

    def __str__(self) -> str:
        return f"{self.by} runs {self.name!r} again for slot {self.slot}, with fence {self.fence}: {self.reason}"


@dataclass(frozen=True, slots=True)
class RunForgotten(Event):
    """An operator dropped the record of a slot of a `once` job, so that it can run again."""

    level: ClassVar[int] = logging.WARNING

    slot: str
    reason: str
    by: str

    def __str__(self) -> str:
        return f"{self.by} made {self.name!r} forget its run for slot {self.slot}: {self.reason}"


@dataclass(frozen=True, slots=True)
class NamePaused(Event):
    """An operator paused a name: nobody gets it until it is resumed, or for `seconds`."""

    level: ClassVar[int] = logging.WARNING

    reason: str
    by: str
    seconds: float | None

    def __str__(self) -> str:
        time = "" if self.seconds is None else f" for {self.seconds:g} s"
        return f"{self.by} paused {self.name!r}{time}: {self.reason}"


@dataclass(frozen=True, slots=True)
class NameResumed(Event):
    """An operator resumed a name."""

    level: ClassVar[int] = logging.WARNING

    by: str

    def __str__(self) -> str:
        return f"{self.by} resumed {self.name!r}"
