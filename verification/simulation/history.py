"""What happened in a run: attempts to get a lock, what they brought, and numbers for the summary.

It only writes down. Order is a count of its own and not the clock, because several things can happen at one instant.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verification.simulation.world import Process, World

__all__ = ["Attempt", "Grants", "History", "Violation", "last_lines", "trace_hash"]


@dataclass(frozen=True, slots=True)
class Violation:
    """A check that failed, and what was seen."""

    check: str
    detail: str


@dataclass(slots=True)
class Attempt:
    """One call of acquire or try_acquire for one name."""

    name: str
    process: Process
    patient: bool  # it waits without a timeout
    began: int
    began_at: float
    owners: set[str] = field(default_factory=set)  # of its claims; only looked up, never listed
    ended: int | None = None


@dataclass(frozen=True, slots=True)
class Grants:
    """One grant as its holder saw it: when the call began and returned, counted in events."""

    name: str
    began: int
    returned: int
    fence: int
    excused: bool = False  # its client could not know yet that an operator had ended the grant that it was part of


class History:
    """The record of one run. Also the place where violations are collected; the first one halts the world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.grants: list[Grants] = []
        self.violations: list[Violation] = []
        self.counts: Counter[str] = Counter()
        self._order = 0

    def tick(self) -> int:
        """The number of the next event."""
        self._order += 1
        return self._order

    def violate(self, check: str, detail: str) -> None:
        """A check failed."""
        self.violations.append(Violation(check, detail))
        self.world.note("VIOLATION", check, detail)
        self.world.halted = True

    def begin(self, name: str, process: Process, *, patient: bool) -> Attempt:
        """A call begins."""
        self.world.note(process.name, "acquire", name, "patient" if patient else "")
        return Attempt(name, process, patient, self.tick(), self.world.now)

    def granted(self, attempt: Attempt, name: str, fence: int, *, excused: bool = False) -> None:
        """A call returned a lease."""
        attempt.ended = self.tick()
        self.grants.append(Grants(name, attempt.began, attempt.ended, fence, excused))
        self.world.note(attempt.process.name, "granted", name, fence)
        self.counts["grants"] += 1

    def refused(self, attempt: Attempt, why: str) -> None:
        """A call returned without a lease."""
        attempt.ended = self.tick()
        self.world.note(attempt.process.name, "not granted", attempt.name, why)
        self.counts["refusals"] += 1


def trace_hash(world: World) -> str:
    """One number for everything that happened, scheduling included: the same for the same seed, always."""
    return hashlib.sha256(repr((world.seed, world.steps, world.digest, world.trace)).encode()).hexdigest()


def last_lines(world: World, count: int | None) -> list[str]:
    """The end of the trace, or all of it, for people."""
    return [_line(entry) for entry in (world.trace if count is None else world.trace[-count:])]


def _line(entry: tuple[Any, ...]) -> str:
    moment, *facts = entry
    return f"{moment:12.6f}  {' '.join(str(fact) for fact in facts)}"
