"""The rows of one name in the tables: the `Rows` of the kit, inside a transaction that may write.

It reads and changes rows; what a request means is decided by `leasehold.kit.rules`. Rows that have run out are removed
when a name is visited, so all that is seen here is alive. A name with one plain holder is folded into its row of
`lock`; a visit unfolds it first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from leasehold._backends.sqlite import statements as sql
from leasehold.kit import rules
from leasehold.kit.rows import Crowd, Row, State
from leasehold.values import Claim, Holder, Mode

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterator

__all__ = ["Notification", "SqliteRows"]

LAST = 2**63 - 1  # a number that no row has
FOLDED, UNFOLDED = 1, 2  # shapes of a row of `lock`


class Notification(NamedTuple):
    """For a waiter whose turn it may be: through which listener, and the number of its row."""

    key: str
    listener: str
    number: int


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
        self.abandoned_until = 0.0
        self._stored = (0, 0.0)
        self._highest = 0  # the last fence that was given out, or kept free

    def enter(self) -> SqliteRows:
        """Unfold the name and remove what has run out; the transaction may write from here on."""
        row = self._execute(sql.LOCK, (self.key,)).fetchone()
        if row is not None:
            shape, abandoned_until = self._stored = (row[0], row[1])
            self._highest = row[2]
            self.abandoned_until = abandoned_until if abandoned_until > self.now else 0.0
            if shape == FOLDED:
                self._execute(sql.UNFOLD, (self.key,))
            if shape:
                rules.expire(self)
        return self

    def settle(self) -> list[Notification]:
        """Write down the shape of the name, and say which waiters should ask for their turn now."""
        notifications = []
        if self.changed:
            waiters = rules.admissible(self)
            notifications = [Notification(self.key, row.listener, row.number) for row in waiters if row.listener]
        is_used = self.abandoned_until > 0 or self._execute(sql.ANY_CLAIM, (self.key,)).fetchone() == (1,)
        shape = UNFOLDED if is_used else 0
        if self._stored != (shape, self.abandoned_until):
            self._execute(sql.REMEMBER, (self.key, shape, self.abandoned_until))
        return notifications

    def expire(self) -> Collection[int]:
        return [state for (state,) in self._execute(sql.EXPIRE, (self.key, self.now))]

    def of_owner(self, owner: str) -> Iterator[Row]:
        return self._rows(sql.OF_OWNER, (self.key, owner))

    def held(self) -> Iterator[Row]:
        return self._rows(sql.HELD, (self.key, self.now))

    def waiting(self) -> Iterator[Row]:
        return self._rows(sql.WAITING, (self.key, self.now))

    def holders(self) -> Crowd:
        return self._crowd(State.HOLDING, State.COOLING, LAST)

    def ahead(self, row: Row | None) -> Crowd:
        return self._crowd(State.WAITING, State.WAITING, LAST if row is None else row.number)

    def soonest_end(self) -> float | None:
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

    def update(self, row: Row) -> None:
        if row.state == State.WAITING:
            row.listener = self._listen()  # the client may have another pipe by now
        self._execute(sql.UPDATE_CLAIM, (row.state, row.expires, row.fence, row.broken, row.listener, row.number))

    def delete(self, row: Row) -> None:
        self._execute(sql.REMOVE, (row.number,))

    def next_fence(self, spare: int = 0, /) -> int:
        (self._highest,) = self._execute(sql.MINT, (self.key, self._fence_by_clock(), spare)).fetchone()
        return self._highest - spare

    def raise_fence(self, fence: int) -> int:
        """Let the next fence be above this one; a holder that was folded into the row has its own by now."""
        (highest,) = self._execute(sql.LIFT_FENCE, (self.key, fence)).fetchone()
        return int(highest)

    def _rows(self, statement: str, values: tuple[object, ...]) -> Iterator[Row]:
        return map(self._row, self._execute(statement, values))

    def _row(self, columns: tuple[Any, ...]) -> Row:
        row = _row(self.key, columns)
        if row.fence and row.claim.mode is Mode.EXCLUSIVE:  # no grant came after it, and has the fences behind its own
            row.spare = self._highest - row.fence
        return row

    def _crowd(self, first: State, last: State, before: int) -> Crowd:
        number, exclusive = self._execute(sql.CROWD, (self.key, first, last, before)).fetchone()
        return Crowd(number, bool(exclusive))


def _row(key: str, columns: tuple[Any, ...]) -> Row:
    (number, owner, state, mode, capacity, ttl, min_hold, host, pid, label, reason, fence, since, expires, abandoned,
     broken, listener) = columns  # fmt: skip
    claim = Claim(key, owner, ttl, Mode(mode), capacity, min_hold, holder_of(host, pid, label, reason))
    return Row(claim, State(state), since, expires, fence, bool(abandoned), broken, number, listener)


def holder_columns(holder: Holder) -> tuple[str, int, str | None, str | None]:
    """The user stands before the host: so files of earlier versions keep their columns, and no host has an @."""
    host = holder.host if holder.user is None else f"{holder.user}@{holder.host}"
    return host, holder.pid, holder.label, holder.reason


def holder_of(host: str, pid: int, label: str | None, reason: str | None) -> Holder:
    """The holder in these columns."""
    user, at, name = host.rpartition("@")
    return Holder(name, pid, label, reason, user if at else None)
