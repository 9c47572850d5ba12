"""A clock that moves only when it is told to."""

from __future__ import annotations

from leasehold.errors import ConfigurationError

__all__ = ["ManualClock"]


class ManualClock:
    """Seconds that pass only in `advance`; everybody who waits on it looks again every few milliseconds."""

    granularity: float | None = 0.002

    def __init__(self, start: float = 1_000.0) -> None:
        self._now = start

    def now(self) -> float:
        """The current instant."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Jump ahead, as a clock does while its host is suspended: nobody gets to do anything in between."""
        if not seconds >= 0:
            raise ConfigurationError(f"a clock does not go back by {seconds!r}")
        self._now += seconds
