"""Everything the file knows about one name, inside a transaction that may write.

It reads and changes rows and says whom to wake; it neither opens transactions nor decides what a request means. Rows
that have run out are removed when an entry is visited, so all that is seen here is alive.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from leasehold.backends.rules import ABANDONED_KEPT, Crowd, admits, check_kind, place_lifetime
from leasehold.backends.sqlite import statements as sql
from leasehold.errors import BackendRejected
from leasehold.values import MAX_FENCE, Claim, Holder, Mode

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from leasehold.values import Grant

__all__ = ["Entry", "Row", "State", "Wake"]

LAST = 2**63 - 1  # a number that no claim has


class State(IntEnum):
    """What a row of `claim` is."""

    HOLDING = 1
    COOLING = 2  # released, kept for its min_hold
    WAITING = 3
    WITHDRAWN = 4  # a late copy of this claim is refused
    BROKEN = 5  # broken at once; its holder learns why


class Row(NamedTuple):
    """A row of `claim`."""

    number: int
    owner: str
    state: int
    mode: str
    capacity: int
    ttl: float
    min_hold: float
    host: str
    pid: int
    label: str | None
    reason: str | None
    fence: int
    since: float
    expires: float
    abandoned: int
    broken: str | None
    bell: str | None

    @property
    def holder(self) -> Holder:
        """Who this is, for people."""
        return Holder(self.host, self.pid, self.label, self.reason)

    def claim(self, key: str) -> Claim:
        """The claim as it was made."""
        return Claim(key, self.owner, self.ttl, Mode(self.mode), self.capacity, self.min_hold, self.holder)


@dataclass(frozen=True, slots=True)
class Wake:
    """A waiter whose turn it may be: which bell to ring, and for which number."""

    key: str
    bell: str
    number: int


class Entry:
    """One name, as it is now."""

    def __init__(self, connection: sqlite3.Connection, key: str, now: float) -> None:
        self._execute = connection.execute
        self.key = key
        self.now = now
        self.changed = False  # somebody left, so that somebody else may come in
        row = self._execute(sql.LOCK, (key,)).fetchone()
        self._stored = (0, 0.0) if row is None else (row[0], row[1])
        self.abandoned_until = self._stored[1] if self._stored[1] > now else 0.0
        if self._stored[0] == 1:
            self._execute(sql.UNFOLD, (key,))
        if self._stored[0]:
            self._expire()

    def _expire(self) -> None:
        states = [state for (state,) in self._execute(sql.EXPIRE, (self.key, self.now))]
        if State.HOLDING in states:
            self.abandoned_until = self.now + ABANDONED_KEPT
        self.changed = any(state <= State.WAITING for state in states)

    # --- looking

    def find(self, owner: str, *states: State) -> Row | None:
        """What this owner has of these kinds."""
        rows = map(Row._make, self._execute(sql.OF_OWNER, (self.key, owner)))
        return next((row for row in rows if row.state in states), None)

    def of_grant(self, grant: Grant, *states: State) -> Row | None:
        """The row of this very grant: a late copy of its claim, granted anew, is another one with another fence."""
        rows = map(Row._make, self._execute(sql.OF_OWNER, (self.key, grant.claim.owner)))
        return next((row for row in rows if row.state in states and row.fence == grant.fence), None)

    def waiter(self, number: int) -> Row | None:
        """Who waits under this number."""
        row = self._execute(sql.OF_NUMBER, (number, self.key)).fetchone()
        return None if row is None else Row._make(row)

    def held(self) -> list[Row]:
        """All that take up room, in order of arrival."""
        return list(map(Row._make, self._execute(sql.HELD, (self.key, self.now))))

    def first_holder(self) -> Holder | None:
        """Who is in the way."""
        row = self._execute(sql.HELD, (self.key, self.now)).fetchone()
        return None if row is None else Row._make(row).holder

    def holders(self) -> Crowd:
        """Who takes up room, in numbers."""
        return self._crowd(State.HOLDING, State.COOLING, LAST)

    def ahead_of(self, number: int = LAST) -> Crowd:
        """Who waits before this number; everybody, if none is given."""
        return self._crowd(State.WAITING, State.WAITING, number)

    def soonest_end(self) -> float | None:
        """How long until the first holder's time is over, if it does not renew."""
        (expires,) = self._execute(sql.SOONEST_END, (self.key,)).fetchone()
        return None if expires is None else expires - self.now

    def check_kind(self, claim: Claim, store: str) -> None:
        """Refuse a claim that does not go together with what is here."""
        row = self._execute(sql.IN_USE, (self.key, self.now)).fetchone()
        if row is not None:
            present = Row._make(row)
            check_kind(claim, Mode(present.mode), present.capacity, store)

    def _crowd(self, first: State, last: State, before: int) -> Crowd:
        number, exclusive = self._execute(sql.CROWD, (self.key, first, last, before)).fetchone()
        return Crowd(number, bool(exclusive))

    # --- changing

    def grant(self, claim: Claim, by_clock: int) -> tuple[int, bool]:
        """Make it a holder, with the next fence; also says whether the one before left without releasing."""
        (fence,) = self._execute(sql.MINT, (self.key, by_clock)).fetchone()
        if fence > MAX_FENCE:
            raise BackendRejected(
                f"the next fence of this name would be {fence}, which is above the largest number that is kept exact; "
                "look at the clock of this host"
            )
        abandoned, self.abandoned_until = self.abandoned_until > 0, 0.0
        self._add(claim, State.HOLDING, self.now + claim.ttl, fence=fence, abandoned=abandoned)
        return fence, abandoned

    def raise_fence(self, fence: int) -> int:
        """Let the next fence be above this one; a holder that was folded into the row has its own by now."""
        (highest,) = self._execute(sql.LIFT_FENCE, (self.key, fence)).fetchone()
        return int(highest)

    def stand(self, claim: Claim, place: Row | None, bell: str | None) -> int:
        """Put it at the end of the queue, or keep the place it has; returns its number."""
        expires = self.now + place_lifetime(claim)
        if place is None:
            return self._add(claim, State.WAITING, expires, bell=bell)
        self._execute(sql.KEEP_PLACE, (expires, bell, place.number))
        return place.number

    def abandon(self) -> None:
        """The next holder is told that this one left without releasing."""
        self.abandoned_until = self.now + ABANDONED_KEPT
        self.changed = True

    def tombstone(self, claim: Claim, until: float) -> None:
        """Refuse late copies of this claim for a while."""
        self._add(claim, State.WITHDRAWN, until)

    def extend(self, row: Row, expires: float) -> None:
        """Let it live longer."""
        self._execute(sql.EXTEND, (expires, row.number))

    def move(self, row: Row, state: State, expires: float) -> None:
        """Make it something else."""
        self._execute(sql.MOVE, (state, expires, row.number))

    def mark_broken(self, row: Row, reason: str) -> None:
        """An operator ended it."""
        self._execute(sql.BREAK, (reason, row.number))

    def remove(self, row: Row) -> None:
        """Forget it."""
        self._execute(sql.REMOVE, (row.number,))
        self.changed = True

    def _add(
        self,
        claim: Claim,
        state: State,
        expires: float,
        *,
        fence: int = 0,
        abandoned: bool = False,
        bell: str | None = None,
    ) -> int:
        holder = claim.holder
        cursor = self._execute(
            sql.ADD_CLAIM,
            (
                *(self.key, claim.owner, state, claim.mode.value, claim.capacity, claim.ttl, claim.min_hold),
                *(holder.host, holder.pid, holder.label, holder.reason),
                *(fence, self.now, expires, abandoned, bell),
            ),
        )
        assert cursor.lastrowid is not None  # noqa: S101 - for the type checker
        return cursor.lastrowid

    # --- at the end

    def settle(self) -> list[Wake]:
        """Write down the shape of the entry, and say who should ask for its turn now."""
        wakes = list(self._next()) if self.changed else []
        busy = self.abandoned_until > 0 or self._execute(sql.ANY_CLAIM, (self.key,)).fetchone() == (1,)
        shape = 2 if busy else 0
        if self._stored != (shape, self.abandoned_until):
            self._execute(sql.REMEMBER, (self.key, shape, self.abandoned_until))
        return wakes

    def _next(self) -> Iterator[Wake]:
        """Every waiter whose turn it may be; each then asks for itself."""
        holders, number, exclusive = self.holders(), 0, False
        for values in self._execute(sql.OF_STATE, (self.key, State.WAITING)):
            row = Row._make(values)
            if not admits(row.claim(self.key), holders, Crowd(number, exclusive)):
                return
            if row.bell is not None:
                yield Wake(self.key, row.bell, row.number)
            number, exclusive = number + 1, exclusive or row.mode == Mode.EXCLUSIVE
