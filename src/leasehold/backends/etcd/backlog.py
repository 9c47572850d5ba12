"""Those who wait inside this client, because it has enough places in the store's line already.

etcd looks through the whole line of a lock for every claim that joins it, so a thousand tasks of one process that want
one lock would make each other slow, and everybody else too. Beyond a few dozen they stand in line here, and join the
store's line when a claim of their own client has left it, or holds the lock. They keep their order among themselves.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.spi import Runtime, Signal

__all__ = ["MOST_SEATS", "Backlog"]

MOST_SEATS = 64  # of one client that wait in the line of one lock; those who hold it do not count


class Backlog:
    """The lines inside one client, by lane; and who of it waits in the store's."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._guard = runtime.guard()
        self._seated: dict[bytes, set[str]] = {}  # owners with a seat in the store's line, or on their way to one
        self._lines: dict[bytes, deque[str]] = {}
        self._signals: dict[str, Signal] = {}  # by owner
        self._until: dict[str, float] = {}  # by owner: who did not ask again until then is gone

    def __contains__(self, owner: str) -> bool:
        return owner in self._signals

    def has_room(self, lane: bytes, owner: str) -> bool:
        """Whether this client may have one more in the store's line, and it is this one's turn among its own."""
        return len(self._seated.get(lane, ())) < MOST_SEATS and self._is_open(lane, owner)

    def _is_open(self, lane: bytes, owner: str) -> bool:
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

    def sit(self, lane: bytes, owner: str) -> None:
        """It goes to the store's line; if there is room for another one, the next here may follow."""
        with self._guard:
            self._leave_line(lane, owner)
            seated = self._seated.setdefault(lane, set())
            seated.add(owner)
            is_full = len(seated) >= MOST_SEATS
        if not is_full:
            self._call_next(lane)

    def leave(self, lane: bytes, owner: str) -> None:
        """It waits no longer: it holds, or does not want to any more."""
        with self._guard:
            self._leave_line(lane, owner)
            left_seat = self._leave_seat(lane, owner)
        if left_seat:
            self._call_next(lane)

    def close(self) -> None:
        """Wake all: there is no line any more."""
        for signal in list(self._signals.values()):
            signal.set()

    def _leave_line(self, lane: bytes, owner: str) -> None:
        self._until.pop(owner, None)
        if self._signals.pop(owner, None) is None:
            return
        line = self._lines[lane]
        line.remove(owner)
        if not line:
            del self._lines[lane]

    def _leave_seat(self, lane: bytes, owner: str) -> bool:
        seated = self._seated.get(lane)
        if seated is None or owner not in seated:
            return False
        seated.discard(owner)
        if not seated:
            del self._seated[lane]
        return True

    def _call_next(self, lane: bytes) -> None:
        """A seat is free: wake the first. Who does not react stands in nobody's way: the others ask by themselves."""
        first = self._first(lane)
        signal = None if first is None else self._signals.get(first)
        if signal is not None:
            signal.set()
