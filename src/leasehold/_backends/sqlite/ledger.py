"""What each request does to the lock file. Plain functions that block shortly.

The common case (an exclusive lock that no one else is interested in) is one statement. Everything else is one short
transaction that applies `leasehold.kit.rules` to the rows of one name, and then notifies the waiters whose turn it may
be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from leasehold._backends.sqlite import statements as sql
from leasehold._backends.sqlite.connection import single_change, transaction
from leasehold._backends.sqlite.rows import Notification, SqliteRows, holder_columns
from leasehold.kit import pauses, rules
from leasehold.kit.rules import Queued
from leasehold.spi import Place
from leasehold.values import MAX_FENCE, Grant, Mode

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from leasehold._backends.sqlite.host import Host
    from leasehold._backends.sqlite.maintenance import Cleaning
    from leasehold._backends.sqlite.notifications import Notifications
    from leasehold.spi import Signal
    from leasehold.values import Claim, Holder, Loss, Refusal

__all__ = ["Ledger"]

A = TypeVar("A")

MOST_UNFOLDED = 1024  # names that are known to be in use by several
RECHECK_WITHOUT_LISTENER = 0.2  # where the system has no named pipes


class Ledger:
    """The verbs. Each takes the open connection first."""

    def __init__(
        self,
        host: Host,
        notifications: Notifications,
        cleaner: Cleaning,
        label: str,
        fence_floor: int,
        *,
        now: Callable[[], float],
    ) -> None:
        """`now` is the clock of the holders, which may be another one than the host's."""
        self._host = host
        self._now = now
        self._first_fence = fence_floor + 1
        self._notifications = notifications
        self._cleaner = cleaner
        self._label = label
        # Of the last holder: in the claims of a lock it is the same object every time.
        self._columns: tuple[Holder | None, tuple[object, ...]] = (None, ())
        self._unfolded: set[str] = set()

    # --- claims

    def try_acquire(self, connection: sqlite3.Connection, claim: Claim) -> Grant | Refusal:
        """Grant now or not at all."""
        if claim.key in self._unfolded:
            return self._visit(connection, claim.key, rules.try_acquire, claim)
        return self._grant_plain(connection, claim) or self._visit(connection, claim.key, rules.try_acquire, claim)

    def join(
        self, connection: sqlite3.Connection, claim: Claim, signal: Callable[[], Signal]
    ) -> Grant | Place | Refusal:
        """Grant now or give a place in the queue, with a new signal."""
        if claim.key in self._unfolded:
            return self._queue(connection, rules.join, claim, signal)
        return self._grant_plain(connection, claim) or self._queue(connection, rules.join, claim, signal)

    def turn(self, connection: sqlite3.Connection, place: Place) -> Grant | Place | Refusal:
        """Grant if nothing ahead is in the way; keep the place otherwise."""
        handed_over = self._handed_over(connection, place.claim)
        if handed_over is not None:
            return handed_over
        return self._queue(connection, rules.turn, place.claim, lambda: place.signal)

    def renew(self, connection: sqlite3.Connection, grants: Sequence[Grant]) -> list[Grant | Loss]:
        """Extend what is still held, all in one transaction."""
        notifications: list[Notification] = []
        answers = transaction(connection, lambda: [self._renew(connection, grant, notifications) for grant in grants])
        self._notify(connection, notifications)
        return answers

    def release(self, connection: sqlite3.Connection, grant: Grant) -> bool | Loss:
        """Free this grant and nothing else; if an operator had broken it, the answer is that loss."""
        claim = grant.claim
        if claim.mode is Mode.EXCLUSIVE and claim.key not in self._unfolded:
            values = (claim.key, claim.owner, grant.fence, self._host.now())
            if single_change(connection, sql.RELEASE_PLAIN, values):
                return True
        return self._visit(connection, claim.key, rules.release, grant)

    def withdraw(self, connection: sqlite3.Connection, claim: Claim, doubt: bool) -> None:  # noqa: FBT001
        """Undo the claim; with doubt, also refuse a copy of it that comes late."""
        self._visit(connection, claim.key, rules.withdraw, claim, doubt=doubt)

    def break_(self, connection: sqlite3.Connection, key: str, fence: int, reason: str, now: bool) -> bool:  # noqa: FBT001
        """End the grant with this fence; its place stays taken until its ttl is over, unless `now`."""
        return self._visit(connection, key, rules.break_, fence, reason, now=now)

    def raise_fence(self, connection: sqlite3.Connection, key: str, fence: int) -> int:
        """Make every later fence of the name higher than this."""
        return self._visit(connection, key, SqliteRows.raise_fence, fence)

    def pause(self, connection: sqlite3.Connection, key: str, by: Holder, seconds: float) -> None:
        """Grant nothing there for so long."""
        self._visit(connection, key, pauses.pause, by, seconds)

    def resume(self, connection: sqlite3.Connection, key: str) -> bool:
        """End the pause."""
        return self._visit(connection, key, pauses.resume)

    # --- the common case

    def _grant_plain(self, connection: sqlite3.Connection, claim: Claim) -> Grant | None:
        """An exclusive claim on a name that is not in use; None if it is not that simple."""
        if claim.mode is not Mode.EXCLUSIVE or claim.min_hold or claim.spare:
            return None
        key, owner, ttl, holder = claim.key, claim.owner, claim.ttl, claim.holder
        now, fence = self._host.now(), self._fence_by_clock()
        self._cleaner.tick()
        known = self._columns
        if known[0] is not holder:
            known = self._columns = (holder, holder_columns(holder))
        values = (key, fence, owner, ttl, now, now + ttl, *known[1])
        if fence <= MAX_FENCE and single_change(connection, sql.GRANT_PLAIN, values):
            return Grant(claim, fence, ttl, None, abandoned=False)
        return None

    def _fence_by_clock(self) -> int:
        """Wall time in microseconds; higher, if the fences of another store must be passed."""
        return max(int(self._host.wall() * 1_000_000), self._first_fence)

    # --- everything else, inside a transaction

    def _visit(
        self, connection: sqlite3.Connection, key: str, verb: Callable[..., A], *given: Any, **options: Any
    ) -> A:
        """Apply a verb to the rows of one name, and notify the waiters whom it concerns."""

        def change() -> tuple[A, list[Notification]]:
            rows = self._rows(connection, key, self._host.now())
            answer = verb(rows, *given, **options)
            notifications = rows.settle(self._notifications.is_ours)
            self._note_shape(key, is_unfolded=rows.is_used)
            return answer, notifications

        answer, notifications = transaction(connection, change)
        if notifications:
            self._notify(connection, notifications)
        return answer

    def _note_shape(self, key: str, *, is_unfolded: bool) -> None:
        """A statement for the common case would be in vain on a name that was unfolded when it was visited last."""
        if not is_unfolded:
            self._unfolded.discard(key)
        elif len(self._unfolded) < MOST_UNFOLDED:
            self._unfolded.add(key)

    def _rows(self, connection: sqlite3.Connection, key: str, now: float) -> SqliteRows:
        return SqliteRows(
            connection,
            key,
            now,
            label=self._label,
            fence_by_clock=self._fence_by_clock,
            listen=self._notifications.listen,
        ).enter()

    def _handed_over(self, connection: sqlite3.Connection, claim: Claim) -> Grant | None:
        """The grant that a release made for this waiter. To read it takes no write: the file is free for others.

        It counts from when it was made. That was on the host's clock, so what has passed since is known. The holder's
        clock is read first: a pause between the two makes the grant look older than it is, never younger.
        """
        now = self._now()
        columns = connection.execute(sql.HANDED_OVER, (claim.key, claim.owner)).fetchone()
        if columns is None:
            return None
        fence, since, expires, abandoned, spare = columns
        passed, window = self._host.now() - since, rules.place_lifetime(claim)
        if not 0 <= passed < window or expires != since + window:  # over, or renewed since
            return None
        return Grant(claim, fence, window, now - passed, bool(abandoned), spare)

    def _queue(
        self,
        connection: sqlite3.Connection,
        verb: Callable[[SqliteRows, Claim], Grant | Queued | Refusal],
        claim: Claim,
        signal: Callable[[], Signal],
    ) -> Grant | Place | Refusal:
        """Join or turn; a waiter can be notified before the transaction that gives it its place ends."""

        def apply(rows: SqliteRows) -> Grant | Place | Refusal:
            answer = verb(rows, claim)
            if not isinstance(answer, Queued):
                return answer
            flag, recheck = signal(), answer.early_recheck
            self._notifications.expect(answer.row.number, flag)
            if answer.row.listener is None:
                recheck = min(recheck, RECHECK_WITHOUT_LISTENER)
            after, paused = answer.retry_after, answer.paused
            return Place(claim, flag, recheck, answer.ahead, answer.holder, retry_after=after, paused=paused)

        return self._visit(connection, claim.key, apply)

    def _renew(self, connection: sqlite3.Connection, grant: Grant, notifications: list[Notification]) -> Grant | Loss:
        claim, now = grant.claim, self._host.now()
        if connection.execute(sql.RENEW_PLAIN, (now + claim.ttl, claim.key, claim.owner, grant.fence, now)).rowcount:
            return Grant(claim, grant.fence, claim.ttl, None, grant.abandoned)
        rows = self._rows(connection, claim.key, now)
        answer = rules.renew(rows, grant)
        notifications += rows.settle(self._notifications.is_ours)
        return answer

    def _notify(self, connection: sqlite3.Connection, notifications: list[Notification]) -> None:
        """Wake these waiters; one that turns out to be dead leaves the queue at once, and the next one is called."""
        for dead in self._notifications.notify(notifications):
            self._visit(connection, dead.key, SqliteRows.take_back, dead.owner)
