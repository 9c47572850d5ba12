"""Sessions: leases of etcd that claims live on, one for each ttl that is in use. It knows keys only as bytes to delete.

A session is believed for its ttl from the *sending* of the last request that was proven to extend it. A grant of a
lease is proof by itself: it goes through the log of the cluster. A keep-alive is not: the leader answers it alone, and
one that was cut off or stopped may answer it without being the leader any more. So it counts only once a later
transaction, which needs a majority, was answered by the same member in the same term: nobody else can have led
meanwhile.

Nothing is kept alive behind anybody's back. A keep-alive is sent when somebody renews, waits or acquires, and extends
every key on the lease; so each key has an instant until which it is wanted, and keys that nobody asked for in time are
deleted before. If that cannot be done for a whole ttl, the session is given up instead, and so is every session whose
time has passed: it may be dead, and is never renewed again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from leasehold.backends.etcd import requests
from leasehold.backends.etcd.trouble import LeaseGone
from leasehold.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from leasehold.backends.etcd.answers import Header
    from leasehold.backends.etcd.connection import Connection
    from leasehold.spi import Runtime, Signal

__all__ = ["BATCH", "Pulse", "Session", "SessionEnded", "Sessions"]

BATCH = 100  # etcd refuses transactions of more than 128 operations
MOST_SESSIONS = 8
FRESH_SHARE = 0.1  # a new claim may find so much of its session's ttl used up
OPEN_PATIENCE = 3.0
LONGEST_PATIENCE = 3.0
CLOSE_PATIENCE = 1.0


class SessionEnded(Exception):
    """The session is over: its lease is gone, or has to be taken for gone."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """A keep-alive that was answered, and waits for its proof."""

    sent: float
    header: Header


class Session:
    """One lease. `sent` is when the last request left that is proven to have extended it."""

    __slots__ = ("borrowed", "ended", "kept", "lease", "notes", "refreshing", "sent", "ttl")

    def __init__(self, lease: int, ttl: int, sent: float, *, borrowed: bool = False) -> None:
        self.lease = lease
        self.ttl = ttl
        self.sent = sent
        self.borrowed = borrowed  # another client's, for a grant that was made there
        self.ended = False
        self.refreshing = False
        self.kept: dict[bytes, float] = {}  # seats on this lease, and until when each is wanted
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

    def prove(self, pulse: Pulse | None, header: Header) -> bool:
        """A transaction was answered that was sent after the keep-alive had been; whether that one counts now."""
        if pulse is None or (pulse.header.member, pulse.header.term) != (header.member, header.term):
            return False
        self.sent = max(self.sent, pulse.sent)
        return True

    def wants(self, key: bytes, until: float) -> None:
        """Keep this seat at least until then."""
        self.kept[key] = until

    def forget(self, key: bytes) -> None:
        """The seat is gone from the lease."""
        self.kept.pop(key, None)

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
            session = self._by_lease[lease] = Session(lease, 1, -math.inf, borrowed=True)
        return session

    def _suitable(self, wanted: int, now: float) -> Session | None:
        """The session for this ttl; when there are too many already, the next longer one."""
        session = self._by_ttl.get(wanted)
        if session is not None and not session.is_over(now):
            return session
        live = [each for each in list(self._by_ttl.items()) if not each[1].is_over(now)]
        if len(live) < MOST_SESSIONS:
            return None
        longer = [each for each in live if each[0] > wanted]
        return min(longer, key=_first)[1] if longer else None

    async def _open_once(self, wanted: int) -> Session | None:
        """Open a session, or wait until somebody else has: hundreds of tasks may start at once."""
        mine = _Opening(self._runtime.signal(), self._runtime.current(), self._runtime.now() + OPEN_PATIENCE)
        other = self._announce(wanted, mine)
        if other is not mine:
            await self._runtime.wait(other.signal, other.until)
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
        session = Session(lease, await self._connection.grant(lease, wanted), sent)
        self._drop_ended(sent)
        self._by_lease[lease] = self._by_ttl[wanted] = session
        return session

    def _drop_ended(self, now: float) -> None:
        for lease, session in list(self._by_lease.items()):
            if session.is_over(now) and not session.is_used:
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
        session.ended = True
        for ttl, each in list(self._by_ttl.items()):
            if each is session:
                self._by_ttl.pop(ttl, None)
        self._by_lease.pop(session.lease, None)
        raise SessionEnded

    async def sweep(self, session: Session) -> None:
        """Delete the keys that nobody wants any more, before they are kept alive along with the others."""
        now = self._runtime.now()
        seats = [key for key, until in list(session.kept.items()) if until <= now]
        notes = [key for key, until in list(session.notes.items()) if until <= now]
        try:
            for key in seats:
                await self._connection.txn(requests.drop(key, session.lease))
                session.forget(key)
            for start in range(0, len(notes), BATCH):
                await self._connection.txn(requests.delete_all(notes[start : start + BATCH]))
                _remove(session.notes, notes[start : start + BATCH])
        except BackendError:
            if any(session.kept.get(key, now) <= now - session.ttl for key in seats):
                self._end(session)

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
            except BackendError:
                return  # they end by themselves


def _first(pair: tuple[int, Session]) -> int:
    return pair[0]


def _remove(notes: dict[bytes, float], keys: list[bytes]) -> None:
    for key in keys:
        notes.pop(key, None)
