"""Checks of a recorded history: pure functions, one file each, from events to what is wrong.

Each returns a list of `Violation`s, empty if there are none. None of them knows a store, a fault or a clock.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Violation"]


@dataclass(frozen=True, slots=True)
class Violation:
    """What is wrong, when, and which clients were part of it."""

    check: str
    t: float
    detail: str
    processes: tuple[int, ...] = ()
