"""The queue as one claim sees it: who is ahead, whether it is the claim's turn, and which nodes to watch. No I/O.

Those ahead only ever become fewer, so they are listed once and then removed one by one. A claim watches as few of them
as decide its turn: one release wakes one waiter, however long the queue is.

    exclusive   all ahead must be gone: the last one ahead is watched
    shared      all exclusive ones ahead must be gone: the last of those is watched
    permit      fewer ahead than there are permits: the first waiter watches all holders, the others the one ahead

A waiter that is granted writes so into its node. The waiter behind it then knows that all further ahead are gone, or
that it is the first waiter now.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from leasehold.values import Mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leasehold._backends.zookeeper.keys import Sibling

__all__ = ["QueueView", "is_admitted", "split"]


def is_admitted(mode: Mode, capacity: int, ahead: Sequence[Sibling]) -> bool:
    """Whether none of those ahead, holding or waiting, excludes a claim."""
    if mode is Mode.SHARED:
        return not any(sibling.is_exclusive for sibling in ahead)
    return len(ahead) < (capacity if mode is Mode.PERMIT else 1)


def split(siblings: Sequence[Sibling]) -> tuple[list[Sibling], list[Sibling]]:
    """Holders and waiters, from all claims in order. A claim that may hold is a holder, before it has noticed too."""
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


class QueueView:
    """The claims ahead of one claim, in order. Only the caller's thread changes it."""

    __slots__ = ("_capacity", "_granted", "_mode", "ahead", "is_listed", "is_stale", "watched")

    def __init__(self, mode: Mode, capacity: int) -> None:
        self._mode = mode
        self._capacity = capacity if mode is Mode.PERMIT else 1
        self.ahead: list[Sibling] = []
        self.watched: set[str] = set()
        self._granted: set[str] = set()  # those that have waited, and were granted then
        self.is_stale = True  # it has to be listed again
        self.is_listed = False  # `ahead` has at least those that are ahead

    def listed(self, siblings: Iterable[Sibling], sequence: int) -> None:
        """The queue as it is now; `sequence` is the number of the claim itself."""
        self.ahead = sorted([s for s in siblings if s.sequence < sequence], key=_in_order)
        if self.watched:
            self.watched &= {sibling.name for sibling in self.ahead}
        self.is_stale, self.is_listed = False, True

    def follows(self, other: QueueView, predecessor: Sibling) -> None:
        """No claim is between this one and another of the same session, which knows those before itself."""
        self.ahead = [*other.ahead, predecessor]
        self.is_stale, self.is_listed = False, True

    def watches_lost(self) -> None:
        """The connection was lost, and every watch with it."""
        self.watched.clear()
        self.is_stale = True

    def gone(self, name: str) -> None:
        """A node ahead is gone. If others are left, they may have gone before, unseen."""
        if self.remove(name) and len(self._blocking()) > self._capacity:
            self.is_stale = True

    def remove(self, name: str) -> bool:
        """A node ahead is gone; False if it was not known."""
        self.watched.discard(name)
        place = self._place_of(name)
        if place is None:
            return False
        self.ahead = self.ahead[:place] + self.ahead[place + 1 :]
        return True

    def granted(self, name: str) -> None:
        """A claim ahead has waited and is granted now, which shows who else must be gone."""
        place = self._place_of(name)
        if place is None or name in self._granted:
            return
        self._granted.add(name)
        found = self.ahead[place]
        if found.mode is Mode.EXCLUSIVE:
            self.ahead = self.ahead[place:]
        elif found.mode is Mode.SHARED:
            self.ahead = [s for s in self.ahead[:place] if not s.is_exclusive] + self.ahead[place:]
        elif len(self.ahead) > self._capacity:
            self.is_stale = True

    @property
    def is_turn(self) -> bool:
        """Whether it is this claim's turn."""
        return not self.is_stale and is_admitted(self._mode, self._capacity, self.ahead)

    def to_watch(self) -> list[str]:
        """The nodes that have to be watched, and are not yet."""
        candidates = self._blocking()
        if self._mode is Mode.SHARED or len(candidates) > self._capacity:
            candidates = candidates[-1:]
        return [sibling.name for sibling in candidates if sibling.name not in self.watched]

    @property
    def waiters_ahead(self) -> int:
        """How many wait before this claim."""
        if self._mode is Mode.PERMIT:
            return max(0, len(self.ahead) - self._capacity)
        for place, sibling in enumerate(self.ahead):
            if sibling.is_exclusive:
                return len(self.ahead) - max(place, 1)
        return 0

    @property
    def first(self) -> str | None:
        """The node of the holder, as far as is known."""
        return self.ahead[0].name if self.ahead else None

    def _place_of(self, name: str) -> int | None:
        """The holder is the first; then from the end, where those are that a claim watches."""
        if self.ahead and self.ahead[0].name == name:
            return 0
        return next((place for place in reversed(range(len(self.ahead))) if self.ahead[place].name == name), None)

    def _blocking(self) -> list[Sibling]:
        if self._mode is Mode.SHARED:
            return [sibling for sibling in self.ahead if sibling.is_exclusive]
        return self.ahead
