"""The line that a claim stands in: who is ahead of it, whether it is its turn, and whom to watch. It does no I/O.

Those ahead only ever become fewer, so they are listed once and then crossed off. A claim watches as few of them as can
tell it about its turn: one release wakes one waiter, however long the line is.

    exclusive   all ahead must be gone: the last one ahead is watched
    shared      all exclusive ones ahead must be gone: the last of those is watched
    permit      fewer ahead than there are permits: the first waiter watches all holders, the others the one ahead

Whoever waits and is then granted says so in its node. That tells the one behind that everybody further ahead is gone,
or that it is the first waiter now.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from leasehold.values import Mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leasehold.backends.zookeeper.nodes import Sibling

__all__ = ["Line", "is_admitted", "split"]


def is_admitted(mode: Mode, capacity: int, ahead: Sequence[Sibling]) -> bool:
    """Whether nobody ahead, holding or waiting, is in the way."""
    if mode is Mode.SHARED:
        return not any(sibling.is_exclusive for sibling in ahead)
    return len(ahead) < (capacity if mode is Mode.PERMIT else 1)


def split(siblings: Sequence[Sibling]) -> tuple[list[Sibling], list[Sibling]]:
    """Holders and waiters, from everybody in order. Who may hold is a holder, whether it knows already or not."""
    holders: list[Sibling] = []
    waiters: list[Sibling] = []
    exclusive_ahead = False
    for place, sibling in enumerate(siblings):
        if sibling.mode is Mode.SHARED:
            admitted = not exclusive_ahead
        else:
            admitted = place < (sibling.capacity if sibling.mode is Mode.PERMIT else 1)
        exclusive_ahead = exclusive_ahead or sibling.is_exclusive
        (holders if admitted else waiters).append(sibling)
    return holders, waiters


_in_order = attrgetter("sequence")


class Line:
    """Everybody ahead of one claim, in order. Only the waiter itself changes it."""

    __slots__ = ("_capacity", "_granted", "_mode", "blind", "earlier", "watched")

    def __init__(self, mode: Mode, capacity: int) -> None:
        self._mode = mode
        self._capacity = capacity if mode is Mode.PERMIT else 1
        self.earlier: list[Sibling] = []
        self.watched: set[str] = set()
        self._granted: set[str] = set()  # who has waited, and was granted then
        self.blind = True  # it has to be listed again

    def see(self, everybody: Iterable[Sibling], sequence: int) -> None:
        """The line as it is now; `sequence` is the number of the claim itself."""
        self.earlier = sorted([s for s in everybody if s.sequence < sequence], key=_in_order)
        if self.watched:
            self.watched &= {sibling.name for sibling in self.earlier}
        self.blind = False

    def forget_watches(self) -> None:
        """The connection was lost, and with it everything that was watched."""
        self.watched.clear()
        self.blind = True

    def gone(self, name: str) -> None:
        """Somebody ahead is gone. If others are left, they may have gone before, unseen."""
        self.watched.discard(name)
        before = len(self.earlier)
        self.earlier = [sibling for sibling in self.earlier if sibling.name != name]
        if len(self.earlier) < before and len(self._in_the_way()) > self._capacity:
            self.blind = True

    def granted(self, name: str) -> None:
        """Somebody ahead has waited, and is granted now: this tells who else must be gone."""
        found = next((sibling for sibling in self.earlier if sibling.name == name), None)
        if found is None or name in self._granted:
            return
        self._granted.add(name)
        place = self.earlier.index(found)
        if found.mode is Mode.EXCLUSIVE:
            self.earlier = self.earlier[place:]
        elif found.mode is Mode.SHARED:
            self.earlier = [s for s in self.earlier[:place] if not s.is_exclusive] + self.earlier[place:]
        elif len(self.earlier) > self._capacity:
            self.blind = True

    @property
    def is_mine(self) -> bool:
        """Whether it is this claim's turn."""
        return not self.blind and is_admitted(self._mode, self._capacity, self.earlier)

    def to_watch(self) -> list[str]:
        """Whom to watch now, and is not watched yet."""
        candidates = self._in_the_way()
        if self._mode is Mode.SHARED or len(candidates) > self._capacity:
            candidates = candidates[-1:]
        return [sibling.name for sibling in candidates if sibling.name not in self.watched]

    @property
    def ahead(self) -> int:
        """How many wait before this claim."""
        if self._mode is Mode.PERMIT:
            return max(0, len(self.earlier) - self._capacity)
        for place, sibling in enumerate(self.earlier):
            if sibling.is_exclusive:
                return len(self.earlier) - max(place, 1)
        return 0

    @property
    def first(self) -> str | None:
        """Who holds, as far as is known."""
        return self.earlier[0].name if self.earlier else None

    def _in_the_way(self) -> list[Sibling]:
        if self._mode is Mode.SHARED:
            return [sibling for sibling in self.earlier if sibling.is_exclusive]
        return self.earlier
