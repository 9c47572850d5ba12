"""A clock that moves only in `advance`."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ManualClock"]


class ManualClock:
    """Seconds that pass only in `advance`; waits on it look at it every few milliseconds."""

    granularity: float | None = 0.002

    def __init__(self, start: float = 1_000.0) -> None:
        self._now = start
        self._running_since: float | None = None

    def now(self) -> float:
        """The current instant."""
        if self._running_since is None:
            return self._now
        return self._now + time.monotonic() - self._running_since

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the clock run by itself while the block runs."""
        self._running_since = time.monotonic()
        try:
            yield
        finally:
            self._now, self._running_since = self.now(), None

    def advance(self, seconds: float) -> None:
        """Jump ahead, as a clock does while its host is suspended: nothing runs in between."""
        if not seconds >= 0:
            raise ConfigurationError(f"a clock does not go back by {seconds!r}")
        self._now += seconds
