"""Places in a pool of connections, and the queue of those who wait for one."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from weakref import ReferenceType

    from leasehold.backends.postgres.line import Line
    from leasehold.spi import Runtime, Signal

T = TypeVar("T")

__all__ = ["Queue", "Slot"]

LOOK_AGAIN = 0.2  # how often one that waits for a place looks without being called
STUCK = 1.0  # how long a first in line may stand there without moving


class Slot:
    """A place in the pool, for as long as somebody refers to it.

    An exception that interrupted a call refers to all that the call had, for as long as it is handled. So a place that
    was not put to use is also free when the same thread or task asks for another: it cannot be in two calls at once.
    """

    __slots__ = ("__weakref__", "is_used", "line", "user")

    def __init__(self, user: object) -> None:
        self.user = user
        self.is_used = False
        self.line: ReferenceType[Line] | None = None


class Queue:
    """Those who wait for a place, served in order: only the first in line looks whether there is one.

    One that was interrupted just when it had lined up would stand there for ever; so a first in line that does not move
    is put aside after a while, and lines up again if it is still there.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: deque[Signal] = deque()
        self._moved = 0.0  # when somebody last left

    def is_empty(self) -> bool:
        """Whether nobody waits."""
        return not self._waiting

    def call_one(self) -> None:
        """There may be a place."""
        if self._waiting:
            with suppress(IndexError):
                self._waiting[0].set()

    def call_all(self) -> None:
        """All have to look: nothing will come any more."""
        for signal in list(self._waiting):
            signal.set()

    async def wait_for(
        self, look: Callable[[], T | None], deadline: float, check: Callable[[], None] = lambda: None
    ) -> T | None:
        """Stand in line until `look` gives something; None if the deadline comes first; `check` may raise."""
        signal = self._runtime.signal()
        self._waiting.append(signal)
        try:
            while True:
                signal.clear()
                check()
                found = look() if self._is_first(signal) else None
                now = self._runtime.now()
                if found is not None or now >= deadline:
                    return found
                await self._runtime.wait(signal, min(deadline, now + LOOK_AGAIN))
        finally:
            with suppress(ValueError):
                self._waiting.remove(signal)
            self._moved = self._runtime.now()
            self.call_one()

    def _is_first(self, signal: Signal) -> bool:
        with suppress(IndexError):
            if self._waiting[0] is not signal and self._runtime.now() > self._moved + STUCK:
                self._waiting.popleft()
                self._moved = self._runtime.now()
            if self._waiting[0] is signal:
                return True
        if signal not in self._waiting:
            self._waiting.append(signal)
        return False
