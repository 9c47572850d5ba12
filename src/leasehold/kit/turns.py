"""Calls of one client change a document one after the other: all at once, each but one would conflict in vain.

Nothing depends on it, because every change is a swap. So a call that waited for too long goes ahead, and ends the turn
that it waited for: that may belong to a call that was interrupted before it could do so itself.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.spi import Runtime, Signal

__all__ = ["Turns"]

PATIENCE = 1.0  # how long a call waits for the turn of another one to end


class Turns:
    """The queue of each document. A turn is a signal of the caller's, which is set when it comes."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._guard = runtime.guard()
        self._queues: dict[str, deque[Signal]] = {}  # by document; the first one has the turn

    async def wait(self, document: str, turn: Signal, until: float) -> None:
        """Wait for our turn, but not for long."""
        with self._guard:
            queue = self._queues.setdefault(document, deque())
            queue.append(turn)
            first = queue[0]
        if first is not turn:
            while not await self._runtime.wait(turn, min(until, self._runtime.now() + PATIENCE)):
                if self._runtime.now() >= until:
                    return
                self.leave(document, first)
                first = queue[0] if queue else turn

    def leave(self, document: str, turn: Signal) -> None:
        """End a turn, or the wait for it."""
        with self._guard:
            queue = self._queues.get(document, deque())
            had_it = bool(queue) and queue[0] is turn
            with suppress(ValueError):
                queue.remove(turn)
            if queue and had_it:
                queue[0].set()
            elif not queue:
                self._queues.pop(document, None)
