"""The last part of a claim's key: a small number that is used again and again, whoever uses it.

Not the claim's owner. etcd keeps every key that ever was in its index until it is compacted, which by default it never
is; a range is looked through key by key, the dead ones included. With a new key for every claim a lock would become
slower with every use (measured: 10 µs for a hundred). So a client begins at a random one of a few numbers and stays
there; the first to come finds its number free, and one that meets another client there moves on to where there is more
room.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.spi import Runtime

__all__ = ["Slots"]

FIRST_ROOM, GROWTH, MOST_ROOM = 64, 64, 2**30


@dataclass(slots=True)
class _Used:
    """The numbers of one lane: how many are in use, the next new one, and those that were given back."""

    count: int = 0
    next: int = 0
    free: list[int] = field(default_factory=list)


class Slots:
    """The numbers that one client uses, by lane. A lane that is not in use is forgotten.

    A number under which something may still be, because an answer was lost, is not used again while the lane is in use.
    Whoever meets it later finds it taken, and moves on.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._guard = runtime.guard()
        self._room = FIRST_ROOM
        self._first = int(runtime.random() * FIRST_ROOM)
        self._lanes: dict[bytes, _Used] = {}

    def take(self, lane: bytes) -> int:
        """A number that no other claim of this client has there."""
        with self._guard:
            used = self._lanes.setdefault(lane, _Used())
            used.count += 1
            if used.free:
                return used.free.pop()
            used.next += 1
            return self._first + used.next - 1

    def give(self, lane: bytes, slot: int) -> None:
        """Nothing of ours is there any more."""
        with self._guard:
            used = self._lanes.get(lane)
            if used is not None:
                used.free.append(slot)
                self._leave(lane, used)

    def lose(self, lane: bytes) -> None:
        """Whoever used a number there is gone, and something of it may be left."""
        with self._guard:
            used = self._lanes.get(lane)
            if used is not None:
                self._leave(lane, used)

    def regain(self, lane: bytes, slot: int) -> None:
        """Nothing is left under a number that was lost."""
        with self._guard:
            used = self._lanes.get(lane)
            if used is not None:
                used.free.append(slot)

    def collide(self, lane: bytes) -> None:
        """Somebody else has the number: begin where fewer others will."""
        with self._guard:
            self._room = min(self._room * GROWTH, MOST_ROOM)
            self._first = int(self._runtime.random() * self._room)
            used = self._lanes.get(lane)
            if used is not None:
                used.next, used.free = 0, []
                self._leave(lane, used)

    def _leave(self, lane: bytes, used: _Used) -> None:
        used.count -= 1
        if used.count <= 0:
            self._lanes.pop(lane, None)
