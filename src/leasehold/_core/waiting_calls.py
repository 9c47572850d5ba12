"""The calls of one client that wait: for their turn, between two tries, or for a store that does not answer.

Closing the client wakes them all, and each ends with `ClientClosed`. Then `finish` gives them a moment to leave the
store's queues before the connections are closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from leasehold.errors import ClientClosed

if TYPE_CHECKING:
    from collections.abc import Hashable

    from leasehold.spi import Runtime, Signal

__all__ = ["WaitingCalls"]

RECHECK = 0.05  # an interrupted call may end without a call of `ended`; then it disappears from `_calls` by itself


@runtime_checkable
class Queued(Protocol):
    """A call that may have a place in a queue of the store while it waits."""

    async def leave_queue(self) -> None:
        """Leave nothing of it in the store."""


class WaitingCalls:
    """Which calls wait, and on which signals."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._guard = runtime.guard()
        self._closed, self._thawed = False, runtime.signal()
        self.is_frozen: bool = False
        self._signals: set[Signal] = set()  # those waited for at the moment
        self._calls: WeakKeyDictionary[object, Hashable] = WeakKeyDictionary()  # with the thread or task of each
        self._ended = runtime.signal()

    @property
    def is_leaving(self) -> bool:
        """Whether the client is being closed, or the process about to end."""
        return self._closed or self.is_frozen

    @property
    def number(self) -> int:
        """How many wait, or have waited and are not over yet."""
        return len(self._calls)

    def begins(self, call: object) -> None:
        """Know a call that is about to wait."""
        with self._guard:
            self._calls[call] = self._runtime.current()

    async def wait(self, call: object, signal: Signal, deadline: float) -> None:
        """Wait until the signal is set or the deadline is reached; `ClientClosed` if the client is closed meanwhile."""
        with self._guard:
            self._check_open()
            self._signals.add(signal)
            self._calls[call] = self._runtime.current()
        try:
            await self._runtime.wait(signal, deadline)
            if self.is_frozen:
                await self._runtime.wait(self._thawed, None)
        finally:
            self._signals.discard(signal)
        self._check_open()

    async def pause(self, call: object, seconds: float) -> None:
        """Let time pass; `ClientClosed` if the client is closed meanwhile."""
        await self.wait(call, self._runtime.signal(), self._runtime.now() + seconds)

    def ended(self, call: object) -> None:
        """Remove a call that has cleaned up and is over."""
        self._calls.pop(call, None)
        self._ended.set()

    def close(self) -> None:
        """Wake every waiting call, and let none wait from now on."""
        with self._guard:
            self._closed = True
            signals = tuple(self._signals)
        self._thawed.set()
        for signal in signals:
            signal.set()

    def freeze(self) -> None:
        """Let every call wait on until `close`: were they woken, the program might end by their error instead."""
        self.is_frozen = True

    async def leave(self, deadline: float) -> None:
        """Leave the store's queues on behalf of the calls that are frozen, and cannot do it themselves."""
        for call in list(self._calls):
            if self._runtime.now() >= deadline:
                return
            if isinstance(call, Queued):
                await call.leave_queue()

    async def finish(self, deadline: float) -> None:
        """Wait until all other calls are over. Not for the caller's own: a signal handler may close the client."""
        me = self._runtime.current()
        while self._runtime.now() < deadline and not self.is_frozen:
            self._ended.clear()
            if all(other == me for other in list(self._calls.values())):
                return
            await self._runtime.wait(self._ended, min(deadline, self._runtime.now() + RECHECK))

    def _check_open(self) -> None:
        """The one place where waiting calls find that the client is closed."""
        if self._closed:
            raise ClientClosed
