"""Whether this process gets the processor in time.

A case in real time counts in units of a short ttl. On a machine that lets a process wait for a good part of that unit,
leases run out that a healthy host would have kept, and the case proves nothing about the store. So the delay is
measured, in a thread that wants to wake up every few milliseconds; see `runner`.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Pace"]

INTERVAL = 0.01


class Pace:
    """Measures, while its block runs, the longest delay in being scheduled; `worst` in seconds."""

    def __init__(self) -> None:
        self.worst = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._measure, name="leasehold contract pace", daemon=True)

    def __enter__(self) -> Pace:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _measure(self) -> None:
        before = time.monotonic()
        while not self._over.wait(INTERVAL):
            now = time.monotonic()
            self.worst = max(self.worst, now - before - INTERVAL)
            before = now
