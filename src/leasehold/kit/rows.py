"""The way of SQL stores to the rules: the rows of one name, inside one transaction.

What a row is, and the questions and changes that `leasehold.kit.rules` has for the place where rows are kept.
`LocalRows` answers them from dictionaries, `leasehold._backends.sqlite.rows` from tables.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

from leasehold._record import record
from leasehold.values import Mode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from leasehold.values import Claim

__all__ = ["Crowd", "Row", "Rows", "State", "crowd_of"]


class State(IntEnum):
    """What a row is. The numbers are stored; those that take up room come first, then waiters, then notes."""

    HOLDING = 1
    COOLING = 2
    WAITING = 3
    WITHDRAWN = 4
    BROKEN = 5


@record(slots=True, eq=False)
class Row:
    """One claim in one state. Instants are on the store's clock.

    `number` orders the rows of a name by arrival; `Rows.insert` gives it. `listener` is the store's own: how a waiter
    is notified.
    """

    claim: Claim
    state: State
    since: float
    expires: float
    fence: int = 0
    abandoned: bool = False  # the holder before this one left without releasing
    broken: str | None = None  # the operator's reason
    number: int = 0
    listener: Any = None
    spare: int = 0  # fences behind that of a holder that no other grant gets


class Rows(Protocol):
    """The rows of one name, at one instant, inside one transaction.

    A verb changes the fields of a row that it got from here and passes it to `update`; it never keeps one. An iterable
    may be lazy. What must hold: at most one row of each kind (holding or cooling; waiting; note) for one owner.
    """

    key: str
    now: float
    label: str  # of the store, for messages
    abandoned_until: float  # until then, the next holder learns that the last one vanished
    changed: bool  # set by the verbs: a place became free, so that a waiter may be admitted

    def expire(self) -> Collection[int]:
        """Delete every row with `expires <= now`; returns their states."""

    def of_owner(self, owner: str) -> Iterable[Row]:
        """All rows of this owner."""

    def held(self) -> Iterable[Row]:
        """Rows that are holding or cooling, in order of their numbers."""

    def waiting(self) -> Iterable[Row]:
        """Rows that are waiting, in order of their numbers."""

    def holders(self) -> Crowd:
        """The rows of `held`, in numbers."""

    def ahead(self, row: Row | None) -> Crowd:
        """The waiters ahead of this row, in numbers; all of them for None."""

    def soonest_end(self) -> float | None:
        """The first instant at which one of `held` expires."""

    def insert(self, row: Row) -> None:
        """Add a row behind all others, and set its number."""

    def update(self, row: Row) -> None:
        """Keep the state, instants, fence, reason and listener that this row has now; its number stays."""

    def delete(self, row: Row) -> None:
        """Forget a row."""

    def next_fence(self, spare: int = 0, /) -> int:
        """A fence above every one that this name has had; the `spare` behind it are given to no other grant."""


@record(frozen=True, slots=True)
class Crowd:
    """How many there are, and whether one of them has or wants the name alone."""

    number: int
    exclusive: bool


def crowd_of(rows: Collection[Row]) -> Crowd:
    """These rows in numbers."""
    return Crowd(len(rows), any(row.claim.mode is Mode.EXCLUSIVE for row in rows))
