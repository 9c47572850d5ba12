"""Sessions: the leases of etcd that claims live on, one for each ttl in use.

A session is valid for its ttl from the *sending* of the last request that is proven to have extended it. The grant of a
lease is proof by itself: it goes through the log of the cluster. A keep-alive is not: the leader answers it alone, and
one that was cut off or stopped may answer it without being the leader any more. So a keep-alive counts only once a
later transaction, which needs a majority, was answered by the same member in the same term: no other member can have
led meanwhile.

No background task keeps a session alive. A keep-alive is sent by a renewal, a waiter or an acquire, and it extends
every key on the lease. So each claim has an instant until which its key is kept, and keys whose instant has passed are
deleted before the next keep-alive is sent. From the moment that such a deletion is sent the claim is over, whatever its
caller reads. If deletions fail for a whole ttl, the session is given up instead. So is a session whose time has passed:
its lease may be gone, and it is never renewed again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from leasehold._backends.etcd import rpc, transactions
from leasehold._backends.etcd.claims import read_claim
from leasehold._backends.etcd.connection import limit
from leasehold._backends.etcd.errors import LeaseGone
from leasehold.errors import BackendError, BackendRejected, ClientClosed

if TYPE_CHECKING:
    from collections.abc import Hashable
    from contextlib import AbstractContextManager

    from leasehold._backends.etcd.claims import LocalClaim
    from leasehold._backends.etcd.connection import Connection
    from leasehold._backends.etcd.rpc import Header
    from leasehold.spi import Runtime, Signal

__all__ = ["BATCH", "KeepAlive", "Session", "SessionEnded", "Sessions"]

BATCH = 100  # etcd refuses transactions of more than 128 operations
MOST_SESSIONS = 8
FRESH_SHARE = 0.1  # a new claim accepts a session of whose ttl so much has passed
DUE_SHARE = 0.25  # a waiter that asks keeps its session alive when so much has passed
OPEN_PATIENCE = 3.0
CLOSE_PATIENCE = 1.0
REMEMBERED = 10  # ttls for which a session that is over stays known, so that it is not renewed by mistake


class SessionEnded(Exception):
    """The session is over: its lease is gone, or that cannot be ruled out."""


class KeepAlive(NamedTuple):
    """A keep-alive that was answered and is not proven yet."""

    sent: float
    header: Header


class Session:
    """One lease. `sent` is when the last request left that is proven to have extended it."""

    __slots__ = ("borrowed", "claims", "ended", "guard", "is_kept_alive", "lease", "marks", "sent", "ttl")

    def __init__(
        self, lease: int, ttl: int, sent: float, guard: AbstractContextManager[object], *, borrowed: bool = False
    ) -> None:
        self.guard = guard  # of the states of its claims
        self.lease = lease
        self.ttl = ttl
        self.sent = sent
        self.borrowed = borrowed  # another client's, for a grant that was made there
        self.ended = False
        self.is_kept_alive = False  # a keep-alive is under way
        self.claims: set[LocalClaim] = set()  # those that have a key on this lease, or may have
        self.marks: dict[bytes, float] = {}  # keys of withdrawn claims, and until when each is kept

    def is_over(self, now: float) -> bool:
        """Whether its lease is gone, or that cannot be ruled out: the clocks of etcd and ours may differ by 1 %."""
        return self.ended or now >= self.sent + self.ttl * 0.99 - 0.005

    def is_due(self, now: float) -> bool:
        """Whether a waiter that asks has to keep it alive; not if that is under way already, and there is time."""
        share = (now - self.sent) / self.ttl
        return share > DUE_SHARE and not (self.is_kept_alive and share < 2 * DUE_SHARE)

    def end(self) -> None:
        """Its lease is gone with all keys on it, or that cannot be ruled out."""
        self.ended = True
        self.claims, self.marks = set(), {}

    def prove(self, keep_alive: KeepAlive | None, header: Header) -> bool:
        """A transaction was answered that was sent after the keep-alive's answer; whether the keep-alive counts."""
        if keep_alive is None:
            return False
        if (keep_alive.header.member, keep_alive.header.term) != (header.member, header.term):
            return False
        self.sent = max(self.sent, keep_alive.sent)
        return True

    def forget(self, claim: LocalClaim) -> None:
        """The claim has no key on this lease any more."""
        self.claims.discard(claim)

    @property
    def is_used(self) -> bool:
        """Whether there may be keys on it."""
        return bool(self.claims or self.marks)


@dataclass(frozen=True, slots=True)
class _Opening:
    """A session that is being opened, by which thread or task, and until when that is believed."""

    signal: Signal
    opener: Hashable
    until: float


class Sessions:
    """The sessions of one client."""

    def __init__(self, connection: Connection, runtime: Runtime) -> None:
        self._connection = connection
        self._runtime = runtime
        self._guard = runtime.guard()
        self._by_ttl: dict[int, Session] = {}
        self._by_lease: dict[int, Session] = {}
        self._opening: dict[int, _Opening] = {}

    def patience(self, session: Session) -> float:
        """How long one request may take that keeps the session: there must be time for another one."""
        return min(self._connection.answer_timeout, max(0.3, session.ttl / 4))

    # --- finding one

    async def take(self, ttl: float) -> tuple[Session, KeepAlive | None]:
        """A session for a new claim, with at least nine tenths of its ttl left once the keep-alive is proven."""
        wanted = max(1, math.ceil(ttl))
        while True:
            now = self._runtime.now()
            session = self._by_ttl.get(wanted)
            if session is None or session.is_over(now):
                session = self._next_longer(wanted, now)
            if session is None:
                await self._make_room(wanted, now)
                session = await self._open_once(wanted)
            elif now - session.sent > session.ttl * FRESH_SHARE and not session.is_kept_alive:
                try:
                    return session, await self.keep_alive(session)
                except SessionEnded:
                    continue
            if session is not None:
                return session, None

    def borrow(self, lease: int) -> Session:
        """The session of a lease. Another client's is never used for new claims, and valid only once proven."""
        session = self._by_lease.get(lease)
        if session is None:
            session = self._by_lease[lease] = Session(lease, 1, -math.inf, self._guard, borrowed=True)
        return session

    def _next_longer(self, wanted: int, now: float) -> Session | None:
        """The session with the next longer ttl, when there can be no further one."""
        live = self._live(now)
        longer = [ttl for ttl in live if ttl > wanted]
        return live[min(longer)] if longer and len(live) >= MOST_SESSIONS else None

    def _live(self, now: float) -> dict[int, Session]:
        return {ttl: session for ttl, session in list(self._by_ttl.items()) if not session.is_over(now)}

    async def _make_room(self, wanted: int, now: float) -> None:
        """When there are as many sessions as there may be, close an idle one; without one, refuse."""
        live = self._live(now)
        coming = [ttl for ttl in list(self._opening) if ttl != wanted and ttl not in live]
        if len(live) + len(coming) < MOST_SESSIONS:
            return
        idle = next((session for session in live.values() if not session.is_used), None)
        if idle is None:
            raise BackendRejected(
                f"this client uses {MOST_SESSIONS} different ttls at the same time, and each needs an etcd lease of "
                "its own; use fewer different ttls, or another client for some of the locks",
                backend=self._connection.label,
            )
        idle.end()  # a claim that took it just now gets an error for the lease, and takes another session
        try:
            await self._connection.revoke(idle.lease, CLOSE_PATIENCE)
        except (BackendError, LeaseGone):
            return  # the lease expires

    async def _open_once(self, wanted: int) -> Session | None:
        """Open a session, or wait until another task has (None): hundreds of tasks may start at once."""
        mine = _Opening(self._runtime.signal(), self._runtime.current(), self._runtime.now() + OPEN_PATIENCE)
        other = self._announce(wanted, mine)
        if other is not mine:
            await self._runtime.wait(other.signal, min(other.until, limit()))
            self._connection.time_left(limit())
            return None
        try:
            return await self._open(wanted)
        finally:
            self._opening.pop(wanted, None)
            mine.signal.set()

    def _announce(self, wanted: int, mine: _Opening) -> _Opening:
        """Who opens it: this task, unless another does. An interrupted one may have left its entry, which expires."""
        with self._guard:
            other = self._opening.get(wanted)
            if other is None or other.opener == mine.opener or self._runtime.now() >= other.until:
                self._opening[wanted] = other = mine
        return other

    async def separate(self, ttl: int) -> int:
        """A lease for one key alone, which is never kept alive."""
        lease = self._fresh_lease()
        await self._connection.grant(lease, ttl)
        return lease

    def _fresh_lease(self) -> int:
        """A random number, so that no other client has it."""
        return int(self._runtime.owner(), 16) & 0x7FFF_FFFF_FFFF_FFFF or 1

    async def _open(self, wanted: int) -> Session:
        lease = self._fresh_lease()
        sent = self._runtime.now()
        session = Session(lease, await self._connection.grant(lease, wanted), sent, self._guard)
        self._note_ended(sent)
        self._by_lease[lease] = self._by_ttl[wanted] = session
        return session

    def _note_ended(self, now: float) -> None:
        """Mark sessions whose time has passed; they stay known by their lease for long after that is gone."""
        for lease, session in list(self._by_lease.items()):
            if session.is_over(now) and not session.borrowed:
                session.end()
            if session.sent < now - REMEMBERED * session.ttl and session.is_over(now) and not session.is_used:
                self._by_lease.pop(lease, None)

    # --- keeping one

    async def keep_alive(self, session: Session) -> KeepAlive:
        """Send a keep-alive, which counts once a transaction that is sent after this has proven it.

        Raises `SessionEnded`.
        """
        if session.is_over(self._runtime.now()) and session.sent > -math.inf:
            self._end(session)
        session.is_kept_alive = True
        try:
            await self.sweep(session)
            return await self._send(session)
        finally:
            session.is_kept_alive = False

    async def _send(self, session: Session) -> KeepAlive:
        sent = self._runtime.now()
        response = await self._connection.keep_alive(session.lease, self.patience(session))
        if response.ttl <= 0:
            self._end(session)
        session.ttl = response.ttl
        return KeepAlive(sent, response.header)

    def _end(self, session: Session) -> NoReturn:
        session.end()
        raise SessionEnded

    async def sweep(self, session: Session) -> None:
        """Delete the keys that are not needed any more, so that they are not kept alive along with the others."""
        now = self._runtime.now()
        overdue = [claim for claim in list(session.claims) if claim.keep_until <= now]
        marks = [key for key, until in list(session.marks.items()) if until <= now]
        try:
            for claim in overdue:
                if claim.start_deleting(now):
                    await self._drop(session, claim)
                    session.forget(claim)
            for start in range(0, len(marks), BATCH):
                await self._connection.txn(transactions.delete_all(marks[start : start + BATCH]))
                _remove(session.marks, marks[start : start + BATCH])
        except BackendError:
            if any(claim in session.claims and claim.keep_until <= now - session.ttl for claim in overdue):
                self._end(session)

    async def _drop(self, session: Session, claim: LocalClaim) -> None:
        """Delete the key if it is still this claim's and lives on this session."""
        created = claim.created or await self._created(claim)
        if created:
            await self._connection.txn(transactions.drop(claim.key, session.lease, created))

    async def _created(self, claim: LocalClaim) -> int:
        """The revision that created the claim's key; 0 if the key is absent or another claim's."""
        found = (await self._connection.range(rpc.read(claim.key))).found
        return found[0].created if found and read_claim(found[0]).owner == claim.claim.owner else 0

    # --- the end

    async def close(self) -> None:
        """Revoke the leases without keys; the others expire."""
        idle = [each for each in list(self._by_lease.values()) if not each.is_used and not each.borrowed]
        for session in idle:
            if session.is_over(self._runtime.now()):
                continue
            try:
                await self._connection.revoke(session.lease, CLOSE_PATIENCE)
            except LeaseGone:
                continue
            except (BackendError, ClientClosed):
                return  # they expire


def _remove(marks: dict[bytes, float], keys: list[bytes]) -> None:
    for key in keys:
        marks.pop(key, None)
