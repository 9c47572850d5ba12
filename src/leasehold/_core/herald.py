"""Announces what happens in the background: one event after the other, in a task of its own.

Whoever listens or logs may hang, and that must not keep the keeper from renewing.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING
from warnings import warn

from leasehold._core.events import Dropped, logger

if TYPE_CHECKING:
    from leasehold._core.events import Event, Events
    from leasehold.spi import Runtime, Task

__all__ = ["Herald"]

MOST_NEWS = 10_000  # with so many unsaid, whoever should listen has hung, and what comes now is not kept for them


class Herald:
    """Says the news of one client."""

    def __init__(self, runtime: Runtime, events: Events) -> None:
        self._runtime = runtime
        self._events = events
        self._guard = runtime.guard()
        self._news: deque[Event] = deque()
        self._is_speaking = False
        self._task: Task | None = None

    def say(self, event: Event) -> None:
        """Have an event announced after those before it; returns at once."""
        if len(self._news) < MOST_NEWS:
            self._news.append(event)
        with self._guard:
            if not self._is_speaking:
                self._task = self._runtime.spawn(self._speak(), "leasehold news")
                self._is_speaking = True  # last: who is interrupted before leaves two that speak, and not none

    async def finish(self, deadline: float) -> None:
        """Wait until everything is said."""
        if self._task is not None:
            await self._task.join(deadline)

    def bury(self) -> None:
        """We are a forked child: what there is to say, the parent says."""
        self._guard = self._runtime.guard()
        self._news.clear()
        self._task = None

    async def _speak(self) -> None:
        while (event := self._next()) is not None:
            try:
                self._events.emit(event)
                if isinstance(event, Dropped):
                    warn(str(event), ResourceWarning, stacklevel=2)
            except Exception:  # noqa: BLE001 - warnings may be errors
                logger.exception("an event could not be announced")

    def _next(self) -> Event | None:
        with self._guard:
            self._is_speaking = bool(self._news)
            return self._news.popleft() if self._news else None
