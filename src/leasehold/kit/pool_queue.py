"""The queue for a connection of a pool, and the slots that it is for."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from weakref import ReferenceType

    from leasehold.spi import Runtime, Signal

T = TypeVar("T")

__all__ = ["PoolQueue", "Slot"]

LOOK_AGAIN = 0.2  # how often a call in the queue looks for a slot without a signal
STUCK = 1.0  # how long the head of the queue may stay there without moving


class Slot:
    """The right to one connection of a pool, for as long as the slot is referred to.

    An exception that interrupted a call refers to all objects of the call for as long as it is handled. So a slot that
    was not put to use is also free when the same thread or task takes another: it cannot be in two calls at once.
    """

    __slots__ = ("__weakref__", "connection", "is_used", "user")

    def __init__(self, user: object) -> None:
        self.user: object = user
        self.is_used: bool = False
        self.connection: ReferenceType[Any] | None = None


class PoolQueue:
    """Calls that wait for a slot, in order; only the head of the queue looks whether there is one.

    Renewals, releases and withdrawals go first: they have about a second, and what they end or keep is what the others
    wait for. Otherwise a release behind sixty waiting acquires would miss its time.

    A call that was interrupted just after it had entered would stay for ever, so a head that does not move is removed
    after a while; if its call still runs, it enters again.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.first: deque[Signal] = deque()
        self.rest: deque[Signal] = deque()
        self._moved = 0.0  # when the head last changed

    def is_open_for(self, *, first: bool) -> bool:
        """Whether a new call would be at the head."""
        return not self.first and (first or not self.rest)

    def call_one(self) -> None:
        """There may be a slot: wake the head."""
        if self.first or self.rest:
            with suppress(IndexError):
                self._served()[0].set()

    def call_all(self) -> None:
        """Wake all: the pool is closed."""
        for signal in [*self.first, *self.rest]:
            signal.set()

    async def wait_for(
        self,
        look: Callable[[], T | None],
        deadline: float,
        check: Callable[[], None] = lambda: None,
        *,
        first: bool = False,
    ) -> T | None:
        """Wait until `look` gives something; None if the deadline is reached before; `check` may raise."""
        signal, waiters = self._runtime.signal(), self.first if first else self.rest
        if not self.first and not self.rest:
            self._moved = self._runtime.now()
        waiters.append(signal)
        try:
            while True:
                signal.clear()
                check()
                found = look() if self._is_head(signal, waiters) else None
                now = self._runtime.now()
                if found is not None or now >= deadline:
                    return found
                await self._runtime.wait(signal, min(deadline, now + LOOK_AGAIN))
        finally:
            with suppress(ValueError):
                waiters.remove(signal)
            self._moved = self._runtime.now()
            self.call_one()

    def _served(self) -> deque[Signal]:
        return self.first or self.rest

    def _is_head(self, signal: Signal, waiters: deque[Signal]) -> bool:
        with suppress(IndexError, ValueError):  # another thread may change the queue meanwhile
            head = self._served()[0]
            if head is not signal and self._runtime.now() > self._moved + STUCK:
                self._moved = self._runtime.now()
                self._served().remove(head)
                head = self._served()[0]
            if head is signal:
                return True
        if signal not in waiters:
            waiters.append(signal)
        return False
