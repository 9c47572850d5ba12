"""The rows of one name in the tables: the `Rows` of the kit, inside a transaction that may write.

It reads and changes rows; what a request means is decided by `leasehold.kit.rules`. Rows that have run out are removed
when a name is visited, so all that is seen here is alive. A name with one plain holder is folded into its row of
`lock`; a visit unfolds it first.

A statement costs more than anything else here. So a name with few claims is read by one of them, and questions are
answered from what it gave; a name with many is asked for what is needed, so that no question costs more than before.
"""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from leasehold._backends.sqlite import statements as sql
from leasehold.kit import rules
from leasehold.kit.rows import Crowd, Row, State, crowd_of
from leasehold.values import MAX_FENCE, Claim, Holder, Mode

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterable

__all__ = ["Notification", "SqliteRows"]

LAST = 2**63 - 1  # a number that no row has
FOLDED, UNFOLDED = 1, 2  # shapes of a row of `lock`
FEW = 16  # claims of one name that are read at once
_COOLING, _WAITING = State.COOLING, State.WAITING  # an attribute of an enum costs more
_EXCLUSIVE = Mode.EXCLUSIVE
_MODES = {mode.value: mode for mode in Mode}
_STATES = {state.value: state for state in State}
_by_number = attrgetter("number")


class Notification(NamedTuple):
    """For a waiter whose turn it may be, or is: through which listener, and the number that its row had."""

    key: str
    listener: str
    number: int
    owner: str = ""


class SqliteRows:
    """One name, as it is now.

    `fence_by_clock` gives the lowest fence that the wall clock allows, and `listen` the listener of a client that gets
    or keeps a place in the queue.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        key: str,
        now: float,
        *,
        label: str = "",
        fence_by_clock: Callable[[], int] = int,
        listen: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._execute = connection.execute
        self._fence_by_clock = fence_by_clock
        self._listen = listen
        self.key = key
        self.now = now
        self.label = label
        self.changed = False
        self.is_used = False  # something was left of the name when it was settled
        self.abandoned_until = 0.0
        self._stored = (0, 0.0)
        self._all: list[Row] | None = None  # in order, if there are few
        self._highest = 0  # the last fence that was given out, or kept free

    def enter(self) -> SqliteRows:
        """Unfold the name and remove what has run out; the transaction may write from here on."""
        found = self._execute(sql.NAME, (self.key, FEW + 1)).fetchall()
        if not found:
            self._all = []
            return self
        shape, abandoned_until, self._highest, *claim = found[0]
        self._stored = (shape, abandoned_until)
        self.abandoned_until = abandoned_until if abandoned_until > self.now else 0.0
        if shape == FOLDED:
            self._execute(sql.UNFOLD, (self.key,))
            self._all = list(self._rows(sql.OF_NAME, (self.key,)))
        elif claim[0] is None:
            self._all = []
        elif len(found) <= FEW:
            self._all = sorted([self._row(columns[3:]) for columns in found], key=_by_number)
        if shape:
            rules.expire(self)
        return self

    def settle(self, is_ours: Callable[[str], bool] = lambda _: True) -> list[Notification]:
        """Write down the shape of the name, and say which waiters should ask for their turn now, or have it.

        Waiters of this client itself, whose listener `is_ours`, ask: a signal wakes them in no time.
        """
        notifications = []
        if self.changed:
            waiters = [row for row in rules.admissible(self) if row.listener]
            notifications = [Notification(self.key, row.listener, row.number, row.claim.owner) for row in waiters]
            if len(waiters) == 1 and not is_ours(waiters[0].listener):
                self._hand_over(waiters[0])
        self.is_used = self.abandoned_until > 0 or self._has_claims()
        shape = UNFOLDED if self.is_used else 0
        if self._stored != (shape, self.abandoned_until):
            self._execute(sql.REMEMBER, (self.key, shape, self.abandoned_until))
        return notifications

    def _hand_over(self, place: Row) -> None:
        """Make the waiter whose turn it is the holder, unless it has to ask for itself.

        At first it has the lock for as long as it had its place, so that one that died meanwhile does not keep it for
        a ttl; its first renewal brings the rest. One that has missed a re-check asks, and so does one behind which
        others may be admitted as well. Its listener stays in the row: so `HANDED_OVER` finds it.
        """
        claim, now = place.claim, self.now
        window = rules.place_lifetime(claim)
        if claim.mode is not Mode.EXCLUSIVE or place.expires - now < window / 2:
            return
        fence = self.next_fence(rules.SPARE)
        if fence > MAX_FENCE - rules.SPARE:
            return  # it gets the error when it asks
        place.state, place.since, place.expires, place.fence = State.HOLDING, now, now + window, fence
        place.abandoned, self.abandoned_until = self.abandoned_until > now, 0.0
        values = (place.state, place.since, place.expires, place.fence, place.abandoned, place.number)
        self._execute(sql.HAND_OVER, values)

    def take_back(self, owner: str) -> None:
        """Remove a waiter that is known to be dead, also if it has just been made the holder.

        What it had to learn about the holder before it, the next one learns.
        """
        for row in tuple(self.of_owner(owner)):
            if row.state in (State.HOLDING, State.WAITING):
                self.delete(row)
                self.changed = True
                if row.abandoned:
                    self.abandoned_until = self.now + rules.ABANDONED_KEPT

    def _has_claims(self) -> bool:
        if self._all is not None:
            return bool(self._all)
        return bool(self._execute(sql.ANY_CLAIM, (self.key,)).fetchone() == (1,))

    def expire(self) -> Collection[int]:
        if self._all is not None:
            alive = [row for row in self._all if row.expires > self.now]
            if len(alive) == len(self._all):
                return ()
            self._all = alive
        return [state for (state,) in self._execute(sql.EXPIRE, (self.key, self.now))]

    def of_owner(self, owner: str) -> Iterable[Row]:
        if self._all is not None:
            return [row for row in self._all if row.claim.owner == owner]
        return self._rows(sql.OF_OWNER, (self.key, owner))

    def held(self) -> Iterable[Row]:
        if self._all is not None:
            return [row for row in self._all if row.state <= _COOLING]
        return self._rows(sql.HELD, (self.key, self.now))

    def waiting(self) -> Iterable[Row]:
        if self._all is not None:
            return [row for row in self._all if row.state == _WAITING]
        return self._rows(sql.WAITING, (self.key, self.now))

    def holders(self) -> Crowd:
        if self._all is not None:
            return crowd_of([row for row in self._all if row.state <= _COOLING])
        return self._crowd(State.HOLDING, State.COOLING, LAST)

    def ahead(self, row: Row | None) -> Crowd:
        last = LAST if row is None else row.number
        if self._all is not None:
            return crowd_of([other for other in self._all if other.state == _WAITING and other.number < last])
        return self._crowd(State.WAITING, State.WAITING, last)

    def soonest_end(self) -> float | None:
        if self._all is not None:
            return min((row.expires for row in self._all if row.state <= _COOLING), default=None)
        (expires,) = self._execute(sql.SOONEST_END, (self.key,)).fetchone()
        return expires  # type: ignore[no-any-return]

    def insert(self, row: Row) -> None:
        if row.state == State.WAITING:
            row.listener = self._listen()
        claim, holder = row.claim, row.claim.holder
        cursor = self._execute(
            sql.ADD_CLAIM,
            (
                *(self.key, claim.owner, row.state, claim.mode.value, claim.capacity, claim.ttl, claim.min_hold),
                *holder_columns(holder),
                *(row.fence, row.since, row.expires, row.abandoned, row.listener),
            ),
        )
        row.number = cursor.lastrowid or 0
        if self._all is not None:
            self._all.append(row)

    def update(self, row: Row) -> None:
        if row.state == State.WAITING:
            row.listener = self._listen()  # the client may have another pipe by now
        self._execute(sql.UPDATE_CLAIM, (row.state, row.expires, row.fence, row.broken, row.listener, row.number))

    def delete(self, row: Row) -> None:
        self._execute(sql.REMOVE, (row.number,))
        if self._all is not None:
            self._all.remove(row)

    def next_fence(self, spare: int = 0, /) -> int:
        """They rise with every grant, and with the wall clock when the file was lost or the row was cleaned away."""
        fence = max(self._highest + 1, self._fence_by_clock())
        self._highest = fence + spare
        self._execute(sql.MINT, (self.key, self._highest))
        return fence

    def raise_fence(self, fence: int) -> int:
        """Let the next fence be above this one; a holder that was folded into the row has its own by now."""
        (self._highest,) = self._execute(sql.LIFT_FENCE, (self.key, fence)).fetchone()
        return self._highest

    def _rows(self, statement: str, values: tuple[object, ...]) -> Iterable[Row]:
        return map(self._row, self._execute(statement, values))

    def _row(self, columns: tuple[Any, ...]) -> Row:
        (number, owner, state, mode, capacity, ttl, min_hold, host, pid, label, reason, fence, since, expires,
         abandoned, broken, listener) = columns  # fmt: skip
        claim = Claim(self.key, owner, ttl, _MODES[mode], capacity, min_hold, holder_of(host, pid, label, reason))
        row = Row(claim, _STATES[state], since, expires, fence, bool(abandoned), broken, number, listener)
        if fence and claim.mode is _EXCLUSIVE:  # no grant came after it, and has the fences behind its own
            row.spare = self._highest - fence
        return row

    def _crowd(self, first: State, last: State, before: int) -> Crowd:
        number, exclusive = self._execute(sql.CROWD, (self.key, first, last, before)).fetchone()
        return Crowd(number, bool(exclusive))


def holder_columns(holder: Holder) -> tuple[str, int, str | None, str | None]:
    """The user stands before the host: so files of earlier versions keep their columns, and no host has an @."""
    host = holder.host if holder.user is None else f"{holder.user}@{holder.host}"
    return host, holder.pid, holder.label, holder.reason


@lru_cache(256)
def holder_of(host: str, pid: int, label: str | None, reason: str | None) -> Holder:
    """The holder in these columns."""
    user, at, name = host.rpartition("@")
    return Holder(name, pid, label, reason, user if at else None)
