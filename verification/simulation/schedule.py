"""The schedule of a run: every fault and every step of every program, each with a name, and which of them take place.

A seed draws a schedule. A run may leave parts of it out: the draws are made all the same, but the fault does not strike
and the step is not done. So a failure can be shrunk: the fewer parts it needs, the easier it is to understand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = ["LAST", "Part", "Schedule", "parse_kept", "written_kept"]

LAST = "last"  # the contest after all faults are healed


@dataclass(frozen=True, slots=True)
class Part:
    """One fault or step; `name` is the same in every run of the seed."""

    name: str
    what: str


class Schedule:
    """What a run may do, and what it was to do.

    `kept`: the names of the parts that take place; None for all. `salt`: not 0 for another order of events with the
    same plan, because a run with fewer parts makes fewer draws, and so needs other luck to go the same way.
    """

    def __init__(self, kept: Collection[str] | None = None, salt: int = 0) -> None:
        self._kept = None if kept is None else frozenset(kept)
        self.salt = salt
        self.parts: dict[str, Part] = {}
        self._faults = 0

    def fault(self, moment: float, what: str) -> bool:
        """The next planned fault; whether it strikes."""
        self._faults += 1
        return self._add(f"f{self._faults}", f"{what} at {moment:.2f} s")

    def step(self, process: str, actor: int, number: int | str, what: str) -> bool:
        """A step of a program; whether it is done."""
        return self._add(f"s{actor}.{number}", f"{process}: {what}")

    def _add(self, name: str, what: str) -> bool:
        if self._kept is not None and name not in self._kept:
            return False
        self.parts[name] = Part(name, what)
        return True


def parse_kept(text: str) -> frozenset[str]:
    """From the command line: names with commas between."""
    return frozenset(name for name in text.split(",") if name)


def written_kept(names: Iterable[str]) -> str:
    """For the command line."""
    return ",".join(names)
