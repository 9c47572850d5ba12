"""Whether this process gets the processor in time, and the store's server what it needs to answer.

A case in real time counts in units of a short ttl. On a machine that lets a process wait for a good part of that unit,
leases run out that a healthy host would have kept, and the case proves nothing about the store. So the delay is
measured, in a thread that wants to wake up every few milliseconds; see `runner`. The server of a store is another
process, which may wait for the processor or the disk while this one does not: so the store's calls are measured too.
"""

from __future__ import annotations

import functools
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from leasehold.spi import Backend

__all__ = ["Pace"]

INTERVAL = 0.01
VERBS = (
    "try_acquire", "renew", "release", "withdraw", "join", "turn",
    "inspect", "list", "break_", "raise_fence", "read", "write",
)  # fmt: skip


class Pace:
    """Measures, while its block runs, in seconds.

    `worst`: the longest delay in being scheduled. `slowest`: the longest call of a store that is watched.
    """

    def __init__(self) -> None:
        self.worst = 0.0
        self.slowest = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._measure, name="leasehold contract pace", daemon=True)

    def watch(self, backend: Backend) -> None:
        """Measure the calls of this connection, below whatever a case puts in between."""
        if hasattr(backend, "__dict__"):
            for verb in VERBS:
                if hasattr(backend, verb):
                    setattr(backend, verb, self._measured(getattr(backend, verb)))

    def _measured(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(call)
        async def perform(*arguments: Any, **options: Any) -> Any:
            began = time.monotonic()
            try:
                return await call(*arguments, **options)
            finally:
                self.slowest = max(self.slowest, time.monotonic() - began)

        return perform

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
