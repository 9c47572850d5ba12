"""A claim of this client's, as far as the client itself has to remember it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.backends.etcd.sessions import Kept
from leasehold.values import Grant, Mode

if TYPE_CHECKING:
    from leasehold.backends.etcd.answers import KeyValue
    from leasehold.backends.etcd.layout import Lane
    from leasehold.backends.etcd.sessions import Session
    from leasehold.spi import Signal
    from leasehold.values import Claim, Holder

__all__ = ["Member", "recheck"]

LONGEST_RECHECK = 10.0


def recheck(claim: Claim) -> float:
    """After how long a waiter asks by itself, which also keeps its session alive."""
    return min(claim.ttl / 3, LONGEST_RECHECK)


class Member:
    """One claim that has a seat, or has asked for one: it waits or it holds."""

    __slots__ = (
        "ahead", "blocker", "claim", "doubtful", "first", "floor", "granted_at", "kept", "lane", "session", "signal",
        "slot", "value", "watch", "written",
    )  # fmt: skip

    def __init__(self, claim: Claim, lane: Lane, session: Session, slot: int | None = None) -> None:
        self.claim = claim
        self.lane = lane
        self.session = session
        self.slot = slot  # None: its number was given by another client
        self.kept = Kept(b"" if slot is None else lane.seat(slot), claim.owner)
        self.value = b""  # as we wrote it last
        self.floor = 0
        self.written = 0
        self.doubtful = False  # a request of it got no answer
        self.granted_at: float | None = None
        self.ahead = 0  # how many stood before it when that was last known
        self.first: Holder | None = None
        self.blocker: tuple[bytes, int] | None = None  # whose going is waited for
        self.watch: int | None = None
        self.signal: Signal | None = None

    def sits(self, kept: KeyValue, floor: int) -> None:
        """It has its seat, and this is what is stored there."""
        if self.seat != kept.key:
            self.kept = Kept(kept.key, self.claim.owner)
        self.kept.created = kept.created
        self.value, self.written, self.floor = kept.value, kept.written, floor
        self.granted_at = None

    @property
    def seat(self) -> bytes:
        """Its key."""
        return self.kept.seat

    @property
    def created(self) -> int:
        """The revision that gave it its seat; 0: whether it has one is not known."""
        return self.kept.created

    def changes(self, session: Session, seat: bytes) -> None:
        """It asks for another seat, or on another session; what an earlier request may have brought stays known."""
        if not self.doubtful:
            self.session.forget(self.kept)
        self.session, self.kept = session, Kept(seat, self.claim.owner)

    @property
    def enough(self) -> int:
        """How many of those in its way it has to know: one, or one more than there may be beside it."""
        return self.claim.capacity + 1 if self.claim.mode is Mode.PERMIT else 1

    @property
    def fence(self) -> int:
        """The fencing token of its grant."""
        return self.floor + self.created

    def grant(self, asked: float) -> Grant:
        """What its caller is told; `asked` is when the call began that brings it."""
        session = self.session
        since = None if session.sent >= asked else session.sent
        return Grant(self.claim, self.fence, float(session.ttl), since)

    def is_wanted(self, now: float) -> bool:
        """Somebody asked for it: its key stays for another ttl. False: too late, it is being deleted."""
        return self.session.wants(self.kept, now + self.session.ttl)
