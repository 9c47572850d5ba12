"""Delivers the events of background work to the logger and to listeners: in order, in a task of its own.

A listener or a log handler is code of the user's and may block for any time. The keeper only appends to a queue here,
so that no listener can delay a renewal. The task exists while the queue is not empty.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING
from warnings import warn

from leasehold._core.events import Dropped
from leasehold._log import logger

if TYPE_CHECKING:
    from leasehold._core.events import Event, Events
    from leasehold.spi import Runtime, Task

__all__ = ["EventDispatcher"]

MOST_EVENTS = 10_000  # with so many undelivered a listener has hung; later events are dropped, to bound memory


class EventDispatcher:
    """The queue of undelivered events of one client, and the task that delivers them."""

    def __init__(self, runtime: Runtime, events: Events) -> None:
        self._runtime = runtime
        self._events = events
        self._guard = runtime.guard()
        self._queue: deque[Event] = deque()
        self._is_running = False
        self._task: Task | None = None

    def dispatch(self, event: Event) -> None:
        """Deliver an event after those before it; returns at once."""
        if len(self._queue) < MOST_EVENTS:
            self._queue.append(event)
        with self._guard:
            if not self._is_running:
                self._task = self._runtime.spawn(self._deliver(), "leasehold events")
                # Set last: an interruption above may start a second task, but never leaves none.
                self._is_running = True

    async def finish(self, deadline: float) -> None:
        """Wait until the queue is empty."""
        if self._task is not None:
            await self._task.join(deadline)

    def bury(self) -> None:
        """Forget the queue in a forked child: the parent delivers it."""
        self._guard = self._runtime.guard()
        self._queue.clear()
        self._task = None

    async def _deliver(self) -> None:
        while (event := self._next()) is not None:
            try:
                self._events.emit(event)
                if isinstance(event, Dropped):
                    warn(str(event), ResourceWarning, stacklevel=2)
            except Exception:
                logger.exception("an event could not be delivered; the next ones are")

    def _next(self) -> Event | None:
        with self._guard:
            self._is_running = bool(self._queue)
            return self._queue.popleft() if self._queue else None
