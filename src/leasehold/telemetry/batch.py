"""Values of a histogram, kept until there are enough of them to count in one go: counting one by one costs much more.

`add` is what a call that takes a lock pays: one append, which is atomic and takes no lock, so that a thread that was
interrupted inside it, by a signal or the garbage collector, can add again. A batch is counted by the call that
completes it, and by each collection. There is no thread that would have to be woken, and nothing that an exit or a fork
could leave behind: a forked child has the values of its parent's batches as it has those that were counted.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CHANGING", "Batch"]

T = TypeVar("T")

CHANGING = threading.Lock()  # around every change of a metric; the recorders take it before a fork
PATIENCE = 1.0  # for which a collection waits for a batch that is being counted; what is missing is in the next one


class Batch(Generic[T]):
    """Values that were added and are not counted yet."""

    __slots__ = ("_count", "_most", "_size", "_values")

    def __init__(self, count: Callable[[list[T]], None], size: int) -> None:
        self._values: list[T] = []
        self._count = count  # removes from the front of the list what it has counted
        self._size = size
        self._most = 10 * size

    def add(self, value: T) -> None:
        """One value more. The lock is waited for only where others could not count for a long time."""
        values = self._values
        values.append(value)
        if len(values) >= self._size and CHANGING.acquire(blocking=len(values) >= self._most):
            self._finish()

    def flush(self) -> None:
        """Count what there is."""
        if self._values and CHANGING.acquire(timeout=PATIENCE):
            self._finish()

    def _finish(self) -> None:
        try:
            self._count(self._values)
        finally:
            CHANGING.release()
