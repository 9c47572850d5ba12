"""A clock that is turned by hand, for modules of the dashboard."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

__all__ = ["Clock", "clock_of"]


class Clock:
    """What time it is."""

    def __init__(self, now: float) -> None:
        self.now = now

    def time(self) -> float:
        """The time of day, and of everything else."""
        return self.now


def clock_of(monkeypatch: pytest.MonkeyPatch, *modules: str, now: float = 1_000.0) -> Clock:
    """The clock that these modules of `leasehold.web` go by from now on."""
    clock = Clock(now)
    for module in modules:
        monkeypatch.setattr(f"leasehold.web.{module}.time", SimpleNamespace(time=clock.time, monotonic=clock.time))
    return clock
