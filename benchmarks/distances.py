"""What the scenarios about distance share: how long something takes typically, and a lock that is passed on."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from benchmarks.harness import Sample, percentile

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.library import Lock

__all__ = ["handed_over", "typical_ms"]


def typical_ms(action: Callable[[], object], count: int) -> float:
    """The median of so many, in milliseconds."""
    return 1000 * percentile([_clocked(action) for _ in range(count)], 0.5)


def handed_over(holder: Lock, waiter: Lock, count: int, pause: float) -> Sample:
    """From a release to the grant of a waiter, which has this pause to join the queue."""
    delays = [_hand_over(holder, waiter, pause) for _ in range(count)]
    return Sample(1000 * percentile(delays, 0.5), {"longest ms": 1000 * max(delays)})


def _hand_over(holder: Lock, waiter: Lock, pause: float) -> float:
    granted: list[float] = []

    def wait() -> None:
        waiter.take()
        granted.append(time.monotonic())
        waiter.give()

    holder.take()
    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(pause)
    released = time.monotonic()
    holder.give()
    thread.join()
    return granted[0] - released


def _clocked(action: Callable[[], object]) -> float:
    started = time.monotonic()
    action()
    return time.monotonic() - started
