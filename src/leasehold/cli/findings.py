"""What the doctor found: one fact, why it matters for a lock, and what to do."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

__all__ = ["Finding", "Level"]


class Level(IntEnum):
    """How bad it is."""

    OK = 0
    WARNING = 1
    PROBLEM = 2


class Finding:
    """One finding; `advice` is empty when nothing has to be done."""

    def __init__(self, check: str, level: Level, found: str, why: str, advice: str = "") -> None:
        self.check = check
        self.level = level
        self.found = found
        self.why = why
        self.advice = advice

    def as_data(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "check": self.check,
            "level": self.level.name.lower(),
            "found": self.found,
            "why": self.why,
            "advice": self.advice,
        }
