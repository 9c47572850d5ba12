"""The clock that leases live on: monotonic, and running while the host is suspended."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Protocol

__all__ = ["SYSTEM_CLOCK", "Clock", "SystemClock", "look_again"]


class Clock(Protocol):
    """A source of instants."""

    @property
    def granularity(self) -> float | None:
        """How often a waiter has to look at this clock, in real seconds; None when real timers follow it."""

    def now(self) -> float:
        """Seconds since some fixed moment."""


class SystemClock:
    """The clock of this host."""

    granularity: float | None = None

    def __init__(self) -> None:
        if hasattr(time, "CLOCK_BOOTTIME"):  # Linux: CLOCK_MONOTONIC stands still in suspend, this one does not
            self._read = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
        elif sys.platform == "darwin":  # time.monotonic() stands still in sleep there, this one does not
            self._read = partial(time.clock_gettime, time.CLOCK_MONOTONIC)
        else:
            self._read = partial(time.monotonic)  # Windows: runs on while the host sleeps
        self.now = self._read  # type: ignore[method-assign]  # one call instead of two, several times in every lock

    def now(self) -> float:
        """Seconds since the host was started."""
        return self._read()


SYSTEM_CLOCK = SystemClock()


def look_again(timeout: float | None, clock: Clock) -> float | None:
    """How long to sleep in real seconds when `timeout` is left on this clock."""
    if clock.granularity is None:
        return timeout
    return clock.granularity if timeout is None else min(timeout, clock.granularity)
