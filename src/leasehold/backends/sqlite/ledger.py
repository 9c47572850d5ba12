"""What each request means for the lock file: the rules of the store, over `Entry`. Plain functions that block shortly.

The common case (an exclusive lock that nobody else is interested in) is one statement. Everything else is one short
transaction that decides over the rows of one name, and then rings the bells of those whose turn it may be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from leasehold.backends.rules import admits, place_lifetime
from leasehold.backends.sqlite import statements as sql
from leasehold.backends.sqlite.entry import Entry, Row, State, Wake
from leasehold.backends.sqlite.file import single_change, transaction
from leasehold.spi import Place
from leasehold.values import MAX_FENCE, Claim, Grant, Loss, LossReason, Mode, Refusal

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from leasehold.backends.sqlite.cleaning import Cleaner
    from leasehold.backends.sqlite.host import Host
    from leasehold.backends.sqlite.wakeup import Bells
    from leasehold.spi import Signal

__all__ = ["Ledger"]

A = TypeVar("A")

SHORTEST_RECHECK = 0.01
RECHECK_WITHOUT_BELL = 0.2  # where the system has no named pipes
TAKEN = Loss(LossReason.TAKEN, "the store does not know this grant any more")


class Ledger:
    """The verbs. Each takes the open connection first."""

    def __init__(self, host: Host, bells: Bells, cleaner: Cleaner, label: str, fence_floor: int) -> None:
        self._host = host
        self._first_fence = fence_floor + 1
        self._bells = bells
        self._cleaner = cleaner
        self._label = label

    # --- claims

    def try_acquire(self, connection: sqlite3.Connection, claim: Claim) -> Grant | Refusal:
        """Grant now or not at all."""
        return self._grant_plain(connection, claim) or self._visit(connection, claim.key, self._try_acquire, claim)

    def join(
        self, connection: sqlite3.Connection, claim: Claim, signal: Callable[[], Signal]
    ) -> Grant | Place | Refusal:
        """Grant now or give a place in the queue, with a new signal."""
        return self._grant_plain(connection, claim) or self._visit(connection, claim.key, self._join, claim, signal)

    def turn(self, connection: sqlite3.Connection, place: Place) -> Grant | Place | Refusal:
        """Grant if nobody ahead is in the way; keep the place otherwise."""
        return self._visit(connection, place.claim.key, self._turn, place)

    def renew(self, connection: sqlite3.Connection, grants: Sequence[Grant]) -> list[Grant | Loss]:
        """Extend what is still held, all in one transaction."""
        wakes: list[Wake] = []
        answers = transaction(connection, lambda: [self._renew(connection, grant, wakes) for grant in grants])
        self._ring(connection, wakes)
        return answers

    def release(self, connection: sqlite3.Connection, grant: Grant) -> bool | Loss:
        """Free this grant and nothing else; if an operator had broken it, say so."""
        claim = grant.claim
        if claim.mode is Mode.EXCLUSIVE:
            values = (claim.key, claim.owner, grant.fence, self._host.now())
            if single_change(connection, sql.RELEASE_PLAIN, values):
                return True
        return self._visit(connection, claim.key, self._release, grant)

    def withdraw(self, connection: sqlite3.Connection, claim: Claim, doubt: bool) -> None:  # noqa: FBT001
        """Undo the claim; with doubt, also refuse a copy of it that comes late."""
        self._visit(connection, claim.key, self._withdraw, claim, doubt)

    def break_(self, connection: sqlite3.Connection, key: str, fence: int, reason: str, now: bool) -> bool:  # noqa: FBT001
        """End the grant with this fence; its place stays taken until its ttl is over, unless `now`."""
        return self._visit(connection, key, self._break, fence, reason, now)

    def raise_fence(self, connection: sqlite3.Connection, key: str, fence: int) -> int:
        """Make every later fence of the name higher than this."""
        return self._visit(connection, key, Entry.raise_fence, fence)

    # --- the common case

    def _grant_plain(self, connection: sqlite3.Connection, claim: Claim) -> Grant | None:
        """An exclusive claim on a name that nobody uses; None if it is not that simple."""
        if claim.mode is not Mode.EXCLUSIVE or claim.min_hold:
            return None
        key, owner, ttl, holder = claim.key, claim.owner, claim.ttl, claim.holder
        now, fence = self._host.now(), self._fence_by_clock()
        self._cleaner.tick(connection)
        values = (key, fence, owner, ttl, now, now + ttl, holder.host, holder.pid, holder.label, holder.reason)
        if fence <= MAX_FENCE and single_change(connection, sql.GRANT_PLAIN, values):
            return Grant(claim, fence, ttl, None, abandoned=False)
        return None

    def _fence_by_clock(self) -> int:
        """Wall time in microseconds; higher, if the fences of another store must be passed."""
        return max(int(self._host.wall() * 1_000_000), self._first_fence)

    # --- the rules, each inside a transaction

    def _visit(self, connection: sqlite3.Connection, key: str, rule: Callable[..., A], *arguments: Any) -> A:
        """Apply a rule to one name, and wake those whom it concerns."""

        def change() -> tuple[A, list[Wake]]:
            entry = Entry(connection, key, self._host.now())
            answer = rule(entry, *arguments)
            return answer, entry.settle()

        answer, wakes = transaction(connection, change)
        if wakes:
            self._ring(connection, wakes)
        return answer

    def _ring(self, connection: sqlite3.Connection, wakes: list[Wake]) -> None:
        """Wake them; one that turns out to be dead leaves the queue at once, and the next one is called."""
        for dead in self._bells.ring(wakes):
            self._visit(connection, dead.key, self._bury, dead.number)

    def _bury(self, entry: Entry, number: int) -> None:
        waiter = entry.waiter(number)
        if waiter is not None:
            entry.remove(waiter)

    def _try_acquire(self, entry: Entry, claim: Claim) -> Grant | Refusal:
        holding = entry.find(claim.owner, State.HOLDING, State.COOLING)
        if holding is not None:
            return self._repeated(entry, claim, holding)
        entry.check_kind(claim, self._label)
        withdrawn = entry.find(claim.owner, State.WITHDRAWN)
        if withdrawn is not None or not admits(claim, entry.holders(), entry.ahead_of()):
            return self._refusal(entry, claim)
        return self._grant(entry, claim)

    def _join(self, entry: Entry, claim: Claim, signal: Callable[[], Signal]) -> Grant | Place | Refusal:
        holding = entry.find(claim.owner, State.HOLDING, State.COOLING)
        if holding is not None:
            return self._repeated(entry, claim, holding)
        if entry.find(claim.owner, State.WITHDRAWN) is not None:
            return self._refusal(entry, claim)
        entry.check_kind(claim, self._label)
        waiting = entry.find(claim.owner, State.WAITING)
        if waiting is None and admits(claim, entry.holders(), entry.ahead_of()):
            return self._grant(entry, claim)
        return self._stand(entry, claim, waiting, signal())

    def _turn(self, entry: Entry, place: Place) -> Grant | Place | Refusal:
        claim = place.claim
        holding = entry.find(claim.owner, State.HOLDING, State.COOLING)
        if holding is not None:
            return self._repeated(entry, claim, holding)
        waiting = entry.find(claim.owner, State.WAITING)
        if waiting is None:
            return self._refusal(entry, claim)
        if not admits(claim, entry.holders(), entry.ahead_of(waiting.number)):
            return self._stand(entry, claim, waiting, place.signal)
        entry.remove(waiting)  # which calls the next: several readers or permits may be admissible at once
        return self._grant(entry, claim)

    def _renew(self, connection: sqlite3.Connection, grant: Grant, wakes: list[Wake]) -> Grant | Loss:
        claim, now = grant.claim, self._host.now()
        if connection.execute(sql.RENEW_PLAIN, (now + claim.ttl, claim.key, claim.owner, grant.fence, now)).rowcount:
            return Grant(claim, grant.fence, claim.ttl, None, grant.abandoned)
        entry = Entry(connection, claim.key, now)
        answer = self._extend(entry, grant)
        wakes += entry.settle()
        return answer

    def _extend(self, entry: Entry, grant: Grant) -> Grant | Loss:
        holding = entry.of_grant(grant, State.HOLDING, State.BROKEN)
        if holding is None:
            return TAKEN
        if holding.broken is not None:
            return Loss(LossReason.BROKEN, holding.broken)
        entry.extend(holding, entry.now + grant.claim.ttl)
        return _grant_of(grant.claim, holding)

    def _release(self, entry: Entry, grant: Grant) -> bool | Loss:
        holding = entry.of_grant(grant, State.HOLDING, State.BROKEN)
        if holding is None:
            return False
        kept_until = holding.since + holding.min_hold
        if holding.state == State.BROKEN:
            pass  # only a note is left; it stays for its time, so that a repeated release gets the same answer
        elif kept_until > entry.now:
            entry.move(holding, State.COOLING, kept_until)
        else:
            entry.remove(holding)  # also a broken one, which was kept for its ttl: its holder has obeyed
        return True if holding.broken is None else Loss(LossReason.BROKEN, holding.broken)

    def _withdraw(self, entry: Entry, claim: Claim, doubt: bool) -> None:  # noqa: FBT001 - called by position
        holding = entry.find(claim.owner, State.HOLDING)
        if holding is not None:
            entry.remove(holding)
            if holding.abandoned:  # it never got to know; the next one has to
                entry.abandon()
        waiting = entry.find(claim.owner, State.WAITING)
        if waiting is not None:
            entry.remove(waiting)
        if doubt:
            entry.tombstone(claim, entry.now + claim.ttl)

    def _break(self, entry: Entry, fence: int, reason: str, now: bool) -> bool:  # noqa: FBT001 - called by position
        holding = next((row for row in entry.held() if row.fence == fence), None)
        if holding is None or holding.state == State.COOLING:
            return False
        entry.mark_broken(holding, reason)
        if now:
            entry.move(holding, State.BROKEN, holding.expires)
            entry.abandon()
        return True

    def _grant(self, entry: Entry, claim: Claim) -> Grant:
        fence, abandoned = entry.grant(claim, self._fence_by_clock())
        return Grant(claim, fence, claim.ttl, None, abandoned)

    def _repeated(self, entry: Entry, claim: Claim, holding: Row) -> Grant | Refusal:
        """The same claim again, because its answer was lost: the same grant, with a new expiry."""
        if holding.state == State.COOLING or holding.broken is not None:
            return self._refusal(entry, claim)
        entry.extend(holding, entry.now + claim.ttl)
        return _grant_of(claim, holding)

    def _stand(self, entry: Entry, claim: Claim, waiting: Row | None, signal: Signal) -> Place:
        bell = self._bells.open()
        number = entry.stand(claim, waiting, bell)
        self._bells.expect(number, signal)
        ahead = entry.ahead_of(number).number
        recheck = place_lifetime(claim) / 3
        if bell is None:
            recheck = min(recheck, RECHECK_WITHOUT_BELL)
        ends = entry.soonest_end()
        if ahead == 0 and ends is not None:  # the first in line is there when a dead holder's time is over
            recheck = min(recheck, max(ends, SHORTEST_RECHECK))
        return Place(claim, signal, recheck, ahead, entry.first_holder())

    def _refusal(self, entry: Entry, claim: Claim) -> Refusal:
        return Refusal(claim.key, entry.first_holder(), entry.soonest_end(), entry.ahead_of().number)


def _grant_of(claim: Claim, holding: Row) -> Grant:
    return Grant(claim, holding.fence, claim.ttl, None, bool(holding.abandoned))
