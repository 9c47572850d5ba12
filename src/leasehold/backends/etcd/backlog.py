"""Those who wait inside this client, because it has enough places in the store's line already.

etcd looks through the whole line of a lock for every claim that joins it, so a thousand tasks of one process that want
one lock would make each other slow, and everybody else too. Beyond a few dozen they stand in line here, and join the
store's line when a claim of their own client has left it. They keep their order among themselves.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.spi import Runtime, Signal

__all__ = ["MOST_SEATS", "Backlog"]

MOST_SEATS = 64  # of one client in the line of one lock


class Backlog:
    """The lines inside one client, by lane."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._guard = runtime.guard()
        self._lines: dict[bytes, deque[str]] = {}
        self._signals: dict[str, Signal] = {}  # by owner
        self._until: dict[str, float] = {}  # by owner: who did not ask again until then is gone

    def __contains__(self, owner: str) -> bool:
        return owner in self._signals

    def is_open(self, lane: bytes, owner: str) -> bool:
        """Whether nobody here is before this one."""
        while (first := self._first(lane)) is not None and self._until.get(first, 0.0) < self._runtime.now():
            self.leave(lane, first)
        return first is None or first == owner

    def _first(self, lane: bytes) -> str | None:
        with self._guard:
            line = self._lines.get(lane)
            return line[0] if line else None

    def stand(self, lane: bytes, owner: str, until: float) -> tuple[Signal, int]:
        """A place at the end, or the one that it has; its signal, and how many are here at most before it."""
        with self._guard:
            self._until[owner] = until
            signal = self._signals.get(owner)
            line = self._lines.setdefault(lane, deque())
            if signal is None:
                signal = self._signals[owner] = self._runtime.signal()
                line.append(owner)
            return signal, len(line) - 1

    def leave(self, lane: bytes, owner: str) -> None:
        """It has a seat now, or does not want one any more."""
        with self._guard:
            self._until.pop(owner, None)
            if self._signals.pop(owner, None) is None:
                return
            line = self._lines[lane]
            line.remove(owner)
            if not line:
                del self._lines[lane]

    def call_next(self, lane: bytes) -> None:
        """A seat is free: wake the first. Who does not react stands in nobody's way: the others ask by themselves."""
        with self._guard:
            line = self._lines.get(lane)
            signal = self._signals.get(line[0]) if line else None
        if signal is not None:
            signal.set()
