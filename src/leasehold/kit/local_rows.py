"""`LocalRows`: the rows of a name in dictionaries, for a store in memory or one that reads a name as one document."""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING

from leasehold.kit.rows import Crowd, State, crowd_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from leasehold.kit.rows import Row

__all__ = ["LocalRows"]

_COOLING, _WAITING, _BROKEN = State.COOLING, State.WAITING, State.BROKEN  # an attribute of an enum costs more
_NO_ROWS = Crowd(0, exclusive=False)


class LocalRows:
    """All rows of one name, by owner; dictionaries keep their order. `next_fence` is where its fences come from."""

    __slots__ = (
        "_held",
        "_last",
        "_notes",
        "_quiet_until",
        "_waiting",
        "abandoned_until",
        "changed",
        "key",
        "label",
        "next_fence",
        "now",
    )

    def __init__(self, key: str, label: str, now: float, next_fence: Callable[..., int]) -> None:
        self.key: str = key
        self.label: str = label
        self.now: float = now
        self.next_fence: Callable[..., int] = next_fence  # takes how many to keep free behind it
        self.abandoned_until: float = 0.0
        self.changed: bool = False
        self._held: dict[str, Row] = {}
        self._waiting: dict[str, Row] = {}
        self._notes: dict[str, Row] = {}
        self._last = 0
        self._quiet_until = math.inf  # no row expires before; it may be too early, never too late

    def __iter__(self) -> Iterator[Row]:
        return chain(self._held.values(), self._waiting.values(), self._notes.values())

    def __len__(self) -> int:
        return len(self._held) + len(self._waiting) + len(self._notes)

    @property
    def is_idle(self) -> bool:
        """Whether nothing has to be remembered but the fence."""
        return not (self._held or self._waiting or self._notes) and self.abandoned_until <= self.now

    def expire(self) -> Collection[int]:
        """Looks through all rows only when one of them may have run out."""
        if self.now < self._quiet_until:
            return ()
        over = [row for row in self if row.expires <= self.now]
        for row in over:
            self.delete(row)
        self._quiet_until = min((row.expires for row in self), default=math.inf)
        return [row.state for row in over]

    def of_owner(self, owner: str) -> Iterable[Row]:
        row = self._held.get(owner)
        if row is not None and not self._waiting and not self._notes:
            return (row,)  # the common case: one holder, and no one else
        found = (row, self._waiting.get(owner), self._notes.get(owner))
        return [row for row in found if row is not None]

    def held(self) -> Collection[Row]:
        return self._held.values()

    def waiting(self) -> Collection[Row]:
        return self._waiting.values()

    def holders(self) -> Crowd:
        return crowd_of(self._held.values()) if self._held else _NO_ROWS

    def ahead(self, row: Row | None) -> Crowd:
        if not self._waiting:
            return _NO_ROWS
        if row is None:
            return crowd_of(self._waiting.values())
        return crowd_of([other for other in self._waiting.values() if other.number < row.number])

    def soonest_end(self) -> float | None:
        return min((row.expires for row in self._held.values()), default=None)

    def insert(self, row: Row) -> None:
        self._last = row.number = self._last + 1
        self._of_kind(row)[row.claim.owner] = row
        self._quiet_until = min(self._quiet_until, row.expires)

    def put(self, row: Row) -> None:
        """Add a row that has a number already."""
        self._of_kind(row)[row.claim.owner] = row
        self._last = max(self._last, row.number)
        self._quiet_until = min(self._quiet_until, row.expires)

    def update(self, row: Row) -> None:
        """A row has moved to the notes if its grant was broken at once; every other change stays within a kind."""
        owner = row.claim.owner
        if row.state == _BROKEN and self._held.get(owner) is row:
            del self._held[owner]
            self._notes[owner] = row
        self._quiet_until = min(self._quiet_until, row.expires)

    def delete(self, row: Row) -> None:
        del self._of_kind(row)[row.claim.owner]

    def _of_kind(self, row: Row) -> dict[str, Row]:
        if row.state <= _COOLING:
            return self._held
        return self._waiting if row.state == _WAITING else self._notes
