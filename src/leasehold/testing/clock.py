"""A clock that moves in `advance`, and by itself when all of the program waits for it."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from leasehold.errors import ConfigurationError
from leasehold.testing.standstill import WAITS, present_threads

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["AUTOJUMP", "ManualClock"]

AUTOJUMP = 0.05


class ManualClock:
    """Seconds that pass in `advance`, and when every thread and task waits.

    When a call waits on it, and nothing in the process has moved for `autojump` real seconds, it jumps to the next
    instant that is waited for; None: it never does. Workers that renew leases are no reason to jump, but they get every
    instant that they wait for.
    """

    granularity: float | None = 0.002  # for runtimes whose waits it does not know

    def __init__(self, start: float = 1_000.0, *, autojump: float | None = AUTOJUMP) -> None:
        self.autojump = autojump
        self._now: float = start
        self._turning = threading.Lock()
        self._running_since: float | None = None
        self.bystanders: set[int] = _threads()

    def now(self) -> float:
        """The current instant."""
        self.bystanders.discard(threading.get_native_id())  # a thread that reads the clock takes part
        if self._running_since is None:
            return self._now
        return self._now + time.monotonic() - self._running_since

    @property
    def is_running(self) -> bool:
        """Whether it moves by itself, in `running`."""
        return self._running_since is not None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the clock run by itself, as fast as real time, while the block runs."""
        self._running_since = time.monotonic()
        self._wake()
        try:
            yield
        finally:
            self._now, self._running_since = self.now(), None

    def advance(self, seconds: float) -> None:
        """Jump ahead, as a clock does while its host is suspended: nothing runs in between."""
        if not seconds >= 0:
            raise ConfigurationError(f"a clock does not go back by {seconds!r}")
        with self._turning:
            self._now += seconds
        self._wake()

    def jump_to(self, instant: float) -> bool:
        """Jump ahead to this instant, unless it is over; False if the clock is running."""
        if self.is_running:
            return False
        with self._turning:
            self._now = max(self._now, instant)
        self._wake()
        return True

    def _wake(self) -> None:
        for wait in tuple(WAITS):
            if wait.clock is self:
                wait.signal.wake()


def _threads() -> set[int]:
    """All that there are; the one that makes the clock looks at it soon."""
    try:
        return present_threads()
    except OSError:
        return set()
