"""Sessions: leases of etcd that claims live on, one for each ttl in use. It knows claims only as keys to delete.

A session is believed for its ttl from the *sending* of the last request that was proven to extend it. A grant of a
lease is proof by itself: it goes through the log of the cluster. A keep-alive is not: the leader answers it alone, and
one that was cut off or stopped may answer it without being the leader any more. So it counts only once a later
transaction, which needs a majority, was answered by the same member in the same term: nobody else can have led
meanwhile.

Nothing is kept alive behind anybody's back. A keep-alive is sent when somebody renews, waits or acquires, and extends
every key on the lease; so each key has an instant until which it is wanted, and keys that nobody asked for in time are
deleted before. From the moment that this is sent, its claim is over, whatever its owner reads. If it cannot be done for
a whole ttl, the session is given up instead, and so is every session whose time has passed: it may be dead, and is
never renewed again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from leasehold.backends.etcd import messages, requests
from leasehold.backends.etcd.connection import limit
from leasehold.backends.etcd.seat import read_seat
from leasehold.backends.etcd.trouble import LeaseGone
from leasehold.errors import BackendError, BackendRejected, ClientClosed

if TYPE_CHECKING:
    from collections.abc import Hashable
    from contextlib import AbstractContextManager

    from leasehold.backends.etcd.answers import Header
    from leasehold.backends.etcd.connection import Connection
    from leasehold.spi import Runtime, Signal

__all__ = ["BATCH", "Kept", "Pulse", "Session", "SessionEnded", "Sessions"]

BATCH = 100  # etcd refuses transactions of more than 128 operations
MOST_SESSIONS = 8
FRESH_SHARE = 0.1  # a new claim may find so much of its session's ttl used up
DUE_SHARE = 0.25  # a waiter that asks keeps its session alive when so much is used up
OPEN_PATIENCE = 3.0
LONGEST_PATIENCE = 3.0
CLOSE_PATIENCE = 1.0
REMEMBERED = 10  # ttls for which a session that is over stays known, so that nobody renews it again


class SessionEnded(Exception):
    """The session is over: its lease is gone, or has to be taken for gone."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """A keep-alive that was answered, and waits for its proof."""

    sent: float
    header: Header


class Kept:
    """The key of one claim on one lease. Another claim may have the same key later; that is another one of these."""

    __slots__ = ("created", "is_doomed", "owner", "seat")

    def __init__(self, seat: bytes, owner: str) -> None:
        self.seat = seat
        self.owner = owner
        self.created = 0  # by which revision; 0: whether it is there is not known
        self.is_doomed = False  # its deletion was sent


class Session:
    """One lease. `sent` is when the last request left that is proven to have extended it."""

    __slots__ = ("_guard", "borrowed", "ended", "kept", "lease", "notes", "refreshing", "sent", "ttl")

    def __init__(
        self, lease: int, ttl: int, sent: float, guard: AbstractContextManager[object], *, borrowed: bool = False
    ) -> None:
        self._guard = guard
        self.lease = lease
        self.ttl = ttl
        self.sent = sent
        self.borrowed = borrowed  # another client's, for a grant that was made there
        self.ended = False
        self.refreshing = False
        self.kept: dict[Kept, float] = {}  # claims on this lease, and until when each is wanted
        self.notes: dict[bytes, float] = {}  # the same for keys that nobody else can have

    @property
    def patience(self) -> float:
        """How long one request may take that is made to keep it: there must be time for another one."""
        return min(LONGEST_PATIENCE, max(0.3, self.ttl / 4))

    @property
    def deadline(self) -> float:
        """From when on it must not be believed any more."""
        return self.sent + self.ttl * 0.99 - 0.005

    def is_over(self, now: float) -> bool:
        """Whether it is gone or has to be taken for gone."""
        return self.ended or now >= self.deadline

    def is_due(self, now: float) -> bool:
        """Whether a waiter that asks has to keep it alive; not if somebody else is about to, and there is time."""
        share = (now - self.sent) / self.ttl
        return share > DUE_SHARE and not (self.refreshing and share < 2 * DUE_SHARE)

    def end(self) -> None:
        """It is gone, with all that lived on it, or has to be taken for gone."""
        self.ended = True
        self.kept, self.notes = {}, {}

    def prove(self, pulse: Pulse | None, header: Header) -> bool:
        """A transaction was answered that was sent after the keep-alive had been; whether that one counts now."""
        if pulse is None or (pulse.header.member, pulse.header.term) != (header.member, header.term):
            return False
        self.sent = max(self.sent, pulse.sent)
        return True

    def wants(self, kept: Kept, until: float) -> bool:
        """Keep this claim at least until then; False: too late, it is being deleted."""
        with self._guard:
            if not kept.is_doomed:
                self.kept[kept] = until
            return not kept.is_doomed

    def lets_go(self, kept: Kept, now: float) -> None:
        """Nobody wants it from now on; it goes before the session is kept alive again."""
        with self._guard:
            self.kept[kept] = min(now, self.kept.get(kept, now))

    def dooms(self, kept: Kept, now: float) -> bool:
        """Whether it may be deleted now, because nobody wants it; from then on nobody can want it again."""
        with self._guard:
            kept.is_doomed = kept.is_doomed or self.kept.get(kept, math.inf) <= now
            return kept.is_doomed

    def forget(self, kept: Kept) -> None:
        """It is gone from the lease."""
        self.kept.pop(kept, None)

    @property
    def is_used(self) -> bool:
        """Whether anything lives on it."""
        return bool(self.kept or self.notes)


@dataclass(frozen=True, slots=True)
class _Opening:
    """Somebody is opening a session."""

    signal: Signal
    who: Hashable
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

    # --- finding one

    async def take(self, ttl: float) -> tuple[Session, Pulse | None]:
        """A session for a new claim, with at least nine tenths of its ttl left once the keep-alive is proven."""
        wanted = max(1, math.ceil(ttl))
        while True:
            now = self._runtime.now()
            session = self._suitable(wanted, now)
            if session is None:
                await self._make_room(wanted, now)
                session = await self._open_once(wanted)
            elif now - session.sent > session.ttl * FRESH_SHARE and not session.refreshing:
                try:
                    return session, await self.refresh(session)
                except SessionEnded:
                    continue
            if session is not None:
                return session, None

    def borrow(self, lease: int) -> Session:
        """The session of a lease. Another client's is never used for new claims, and believed only once proven."""
        session = self._by_lease.get(lease)
        if session is None:
            session = self._by_lease[lease] = Session(lease, 1, -math.inf, self._guard, borrowed=True)
        return session

    def _suitable(self, wanted: int, now: float) -> Session | None:
        """The session for this ttl; when there are too many already, the next longer one."""
        session = self._by_ttl.get(wanted)
        if session is not None and not session.is_over(now):
            return session
        live = self._live(now)
        longer = [ttl for ttl in live if ttl > wanted]
        return live[min(longer)] if longer and len(live) >= MOST_SESSIONS else None

    def _live(self, now: float) -> dict[int, Session]:
        return {ttl: session for ttl, session in list(self._by_ttl.items()) if not session.is_over(now)}

    async def _make_room(self, wanted: int, now: float) -> None:
        """When there are as many sessions as there may be, an idle one has to go; without one, refuse."""
        live = self._live(now)
        coming = [ttl for ttl in list(self._opening) if ttl != wanted and ttl not in live]
        if len(live) + len(coming) < MOST_SESSIONS:
            return
        idle = next((session for session in live.values() if not session.is_used), None)
        if idle is None:
            raise BackendRejected(
                f"this client uses {MOST_SESSIONS} different ttls at the same time, and each needs a lease of etcd of "
                "its own; use fewer",
                backend=self._connection.label,
            )
        idle.end()  # a claim that took it just now finds its lease gone, and asks again
        try:
            await self._connection.revoke(idle.lease, CLOSE_PATIENCE)
        except (BackendError, LeaseGone):
            return  # it ends by itself

    async def _open_once(self, wanted: int) -> Session | None:
        """Open a session, or wait until somebody else has: hundreds of tasks may start at once."""
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
        """Whoever opens it: us, if nobody else does. One who was interrupted may have left its word here for ever."""
        with self._guard:
            other = self._opening.get(wanted)
            if other is None or other.who == mine.who or self._runtime.now() >= other.until:
                self._opening[wanted] = other = mine
        return other

    async def separate(self, ttl: int) -> int:
        """A lease of its own for one key, which is never kept alive."""
        lease = self._fresh_lease()
        await self._connection.grant(lease, ttl)
        return lease

    def _fresh_lease(self) -> int:
        """A number of our own choice, so that nobody else can have it."""
        return int(self._runtime.owner(), 16) & 0x7FFF_FFFF_FFFF_FFFF or 1

    async def _open(self, wanted: int) -> Session:
        lease = self._fresh_lease()
        sent = self._runtime.now()
        session = Session(lease, await self._connection.grant(lease, wanted), sent, self._guard)
        self._note_ended(sent)
        self._by_lease[lease] = self._by_ttl[wanted] = session
        return session

    def _note_ended(self, now: float) -> None:
        """Sessions whose time has passed stay known by their number for long after their lease is gone."""
        for lease, session in list(self._by_lease.items()):
            if session.is_over(now) and not session.borrowed:
                session.end()
            if session.sent < now - REMEMBERED * session.ttl and session.is_over(now) and not session.is_used:
                self._by_lease.pop(lease, None)

    # --- keeping one

    async def refresh(self, session: Session) -> Pulse:
        """Send a keep-alive, which counts when it is proven by a transaction that is sent after this.

        Raises `SessionEnded`.
        """
        if session.is_over(self._runtime.now()) and session.sent > -math.inf:
            self._end(session)
        session.refreshing = True
        try:
            await self.sweep(session)
            return await self._pulse(session)
        finally:
            session.refreshing = False

    async def _pulse(self, session: Session) -> Pulse:
        sent = self._runtime.now()
        answer = await self._connection.keep_alive(session.lease, session.patience)
        if answer.ttl <= 0:
            self._end(session)
        session.ttl = answer.ttl
        return Pulse(sent, answer.header)

    def _end(self, session: Session) -> NoReturn:
        session.end()
        raise SessionEnded

    async def sweep(self, session: Session) -> None:
        """Delete the keys that nobody wants any more, before they are kept alive along with the others."""
        now = self._runtime.now()
        unwanted = [kept for kept, until in list(session.kept.items()) if until <= now]
        notes = [key for key, until in list(session.notes.items()) if until <= now]
        try:
            for kept in unwanted:
                if session.dooms(kept, now):
                    await self._drop(session, kept)
                    session.forget(kept)
            for start in range(0, len(notes), BATCH):
                await self._connection.txn(requests.delete_all(notes[start : start + BATCH]))
                _remove(session.notes, notes[start : start + BATCH])
        except BackendError:
            if any(session.kept.get(kept, now) <= now - session.ttl for kept in unwanted):
                self._end(session)

    async def _drop(self, session: Session, kept: Kept) -> None:
        """Delete the key if it is still this claim's and lives on this session."""
        created = kept.created or await self._created(kept)
        if created:
            await self._connection.txn(requests.drop(kept.seat, session.lease, created))

    async def _created(self, kept: Kept) -> int:
        """By which revision the claim got its key, if it did."""
        found = (await self._connection.range(messages.read(kept.seat))).found
        return found[0].created if found and read_seat(found[0]).owner == kept.owner else 0

    # --- the end

    async def close(self) -> None:
        """Give back the leases that nothing lives on; the others are left to their ttl."""
        idle = [each for each in list(self._by_lease.values()) if not each.is_used and not each.borrowed]
        for session in idle:
            if session.is_over(self._runtime.now()):
                continue
            try:
                await self._connection.revoke(session.lease, CLOSE_PATIENCE)
            except LeaseGone:
                continue
            except (BackendError, ClientClosed):
                return  # they end by themselves


def _remove(notes: dict[bytes, float], keys: list[bytes]) -> None:
    for key in keys:
        notes.pop(key, None)
