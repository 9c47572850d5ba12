"""What an examination of a store found: one fact, why it matters for a lock, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

__all__ = ["Finding", "Level"]


class Level(IntEnum):
    """How bad it is."""

    OK = 0
    WARNING = 1
    PROBLEM = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding; `advice` is empty when nothing has to be done."""

    check: str
    level: Level
    found: str
    why: str
    advice: str = ""

    def as_data(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "check": self.check,
            "level": self.level.name.lower(),
            "found": self.found,
            "why": self.why,
            "advice": self.advice,
        }
