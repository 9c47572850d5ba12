"""Claims: as etcd stores them (`StoredClaim`), and as the client that made them remembers them (`LocalClaim`).

The stored value is a JSON object: the fields of the holder, and a few of the store's own (`owner`, `floor`, `since`,
perhaps `broken`). A value that begins with "~" belongs to a lock that was released and is kept for its `min_hold`; the
mark comes first, so that a condition of a transaction can see it.

A local claim is always in one of these states:

    ASKED        it has no key: no request was sent, or all were answered
    UNCONFIRMED  a request got no answer, so there may be a key
    WAITING      it has a key in the queue
    HELD         it was granted
    DELETING     the deletion of its key was sent: the claim is over, even if a read that is answered later still shows
                 the key

Nothing leads out of DELETING, and only the session's guard protects the way into it: the claim's own caller and another
one that cleans up on the same session may decide at the same moment, and one of them has to come first.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from leasehold._backends.etcd import rpc
from leasehold._backends.etcd.keys import after
from leasehold.errors import BackendRejected
from leasehold.kit.holder import holder_fields, holder_from_fields
from leasehold.values import Grant, Mode, Refusal

if TYPE_CHECKING:
    from leasehold._backends.etcd.connection import Connection
    from leasehold._backends.etcd.fences import Fences
    from leasehold._backends.etcd.keys import KeySpace, KeySuffixes, LockKeys
    from leasehold._backends.etcd.notifications import Notifications
    from leasehold._backends.etcd.queue import LocalQueue
    from leasehold._backends.etcd.rpc import KeyValue
    from leasehold._backends.etcd.sessions import Session, Sessions
    from leasehold.spi import Runtime, Signal
    from leasehold.values import Claim, Holder

__all__ = ["COOLING", "ClaimState", "Claims", "LocalClaim", "StoredClaim", "encode_claim", "read_claim", "recheck"]

COOLING = b"~"
LONGEST_RECHECK = 10.0
_dumps = json.JSONEncoder(separators=(",", ":")).encode


def recheck(claim: Claim) -> float:
    """After how many seconds a waiter asks without a notification, which also keeps its session alive."""
    return min(claim.ttl / 3, LONGEST_RECHECK)


# --- as it is stored


@dataclass(frozen=True, slots=True)
class StoredClaim:
    """A claim as it is stored."""

    kv: KeyValue
    owner: str
    holder: Holder
    floor: int
    since: float  # the wall clock of its client, for people
    broken: str | None
    cooling: bool
    fields: dict[str, Any]

    @property
    def fence(self) -> int:
        """The fencing token of its grant."""
        return self.floor + self.kv.created

    def with_(self, **changes: Any) -> bytes:
        """The same value with some fields changed, and not marked as cooling."""
        return _dumps({**self.fields, **changes}).encode()


def encode_claim(claim: Claim, floor: int, since: float) -> bytes:
    """The value of a new claim."""
    return b'%s%.3f,"owner":%s}' % (_constant_fields(claim.holder, floor), since, _dumps(claim.owner).encode())


@lru_cache(maxsize=1024)
def _constant_fields(holder: Holder, floor: int) -> bytes:
    """The part of the value that does not differ from claim to claim."""
    return _dumps({**holder_fields(holder), "floor": floor})[:-1].encode() + b',"since":'


def read_claim(kv: KeyValue) -> StoredClaim:
    """Read a stored claim, or refuse a value that another program has written."""
    cooling = kv.value.startswith(COOLING)
    try:
        fields = json.loads(kv.value[1:] if cooling else kv.value)
        owner, floor, since, broken = fields["owner"], fields["floor"], fields["since"], fields.get("broken")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _foreign(kv) from None
    holder = holder_from_fields(fields)
    if holder is None:
        raise _foreign(kv)
    return StoredClaim(kv, owner, holder, floor, since, broken, cooling, fields)


def _foreign(kv: KeyValue) -> BackendRejected:
    return BackendRejected(
        f"the value of {kv.key!r} was not written by leasehold; keep other programs off these keys, or choose another "
        "root for the locks: etcd://host/ROOT"
    )


# --- as its client remembers it


class ClaimState(Enum):
    """What is known of a claim of this client; see the head of this file."""

    ASKED = "asked"
    UNCONFIRMED = "unconfirmed"
    WAITING = "waiting"
    HELD = "held"
    DELETING = "deleting"


class LocalClaim:
    """One claim of this client under one key on one session. Asking under another key makes another one of these."""

    __slots__ = (
        "ahead", "blocker", "claim", "created", "first", "floor", "granted_at", "keep_until", "key", "keys", "session",
        "signal", "state", "suffix", "value", "watch", "written",
    )  # fmt: skip

    def __init__(self, claim: Claim, keys: LockKeys, session: Session, key: bytes, suffix: int | None = None) -> None:
        self.claim = claim
        self.keys = keys
        self.session = session
        self.key = key
        self.suffix = suffix  # None: the key was made by another client
        self.state = ClaimState.ASKED
        self.keep_until = 0.0  # after this its key may be deleted; only while the session lists the claim
        self.created = self.written = self.floor = 0  # revisions of its key (0: not known), and the floor of its fence
        self.value = b""  # as we wrote it last
        self.granted_at: float | None = None
        self.ahead = 0  # how many claims were before it when that was last known
        self.first: Holder | None = None
        self.blocker: tuple[bytes, int] | None = None  # the claim whose end it waits for
        self.watch: int | None = None
        self.signal: Signal | None = None

    # --- states

    @property
    def is_being_deleted(self) -> bool:
        """Whether the deletion of its key was sent."""
        return self.state is ClaimState.DELETING

    @property
    def has_no_key(self) -> bool:
        """Whether it surely has no key."""
        return self.state is ClaimState.ASKED

    def keep_for_a_ttl(self, now: float) -> bool:
        """Keep its key for another ttl; False: too late, its deletion was sent."""
        session = self.session
        with session.guard:
            if self.state is ClaimState.DELETING:
                return False
            self.keep_until = now + session.ttl
            session.claims.add(self)
            return True

    def got_no_answer(self) -> None:
        """A request of it was sent and not answered."""
        with self.session.guard:
            if self.state is ClaimState.ASKED:
                self.state = ClaimState.UNCONFIRMED

    def got_key(self, kv: KeyValue, floor: int) -> None:
        """It has a key, and this is stored there."""
        self.created, self.written, self.value, self.floor = kv.created, kv.written, kv.value, floor
        self.granted_at = None
        with self.session.guard:
            if self.state is not ClaimState.DELETING:
                self.state = ClaimState.WAITING

    def hold(self, asked: float, now: float) -> bool:
        """It is granted: keep its key for a ttl from `asked` on; False: too late, its deletion was sent."""
        session = self.session
        with session.guard:
            if self.state is ClaimState.DELETING:
                return False
            self.keep_until = asked + session.ttl
            session.claims.add(self)
            if self.state is not ClaimState.HELD:
                self.state, self.granted_at = ClaimState.HELD, now
            return True

    def give_up(self, now: float) -> None:
        """Its key is not needed any more, and is deleted before the session is kept alive again."""
        session = self.session
        with session.guard:
            self.keep_until = min(now, self.keep_until) if self in session.claims else now
            session.claims.add(self)

    def start_deleting(self, now: float) -> bool:
        """Whether its key may be deleted now, because it is not needed any more; from then on it cannot be kept."""
        session = self.session
        with session.guard:
            if self in session.claims and self.keep_until <= now:
                self.state = ClaimState.DELETING
            return self.state is ClaimState.DELETING

    def successor(self, session: Session, key: bytes, suffix: int | None) -> LocalClaim:
        """The same claim, asked for under another key or on another session.

        A key that an earlier request may have made stays listed in the session that it would be on, until it is deleted
        or known to be absent.
        """
        other = LocalClaim(self.claim, self.keys, session, key, suffix)
        if self.state in (ClaimState.ASKED, ClaimState.WAITING, ClaimState.HELD):
            self.session.forget(self)
        else:
            other.state = ClaimState.UNCONFIRMED
        other.signal, other.ahead, other.first = self.signal, self.ahead, self.first
        return other

    # --- grants

    @property
    def limit(self) -> int:
        """How many of the claims in its way it has to see: one, or one more than there may be beside it."""
        return self.claim.capacity + 1 if self.claim.mode is Mode.PERMIT else 1

    @property
    def fence(self) -> int:
        """The fencing token of its grant."""
        return self.floor + self.created

    def grant(self, asked: float) -> Grant:
        """The grant for a call that began at `asked`, dated back if its session was confirmed before that."""
        session = self.session
        since = None if session.sent >= asked else session.sent
        return Grant(self.claim, self.floor + self.created, float(session.ttl), since)


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of one client, and the parts of the store that every step of the protocol needs."""

    connection: Connection
    keys: KeySpace
    sessions: Sessions
    fences: Fences
    suffixes: KeySuffixes
    notifications: Notifications
    local_queue: LocalQueue
    runtime: Runtime
    by_owner: dict[str, LocalClaim] = field(default_factory=dict)

    def keys_of(self, claim: Claim) -> LockKeys:
        """The keys of the claim's lock."""
        return self.keys.of(claim.key, claim.mode, claim.capacity)

    def open(self, claim: Claim, keys: LockKeys, session: Session) -> LocalClaim:
        """The claim as it is remembered, or from now on: repeated requests of a claim name the same key."""
        local = self.by_owner.get(claim.owner)
        if local is None:
            suffix = self.suffixes.take(keys.claims)
            key = keys.claims + b"%x" % suffix
            local = self.by_owner[claim.owner] = LocalClaim(claim, keys, session, key, suffix)
        elif not local.created and local.session is not session:
            local = self.by_owner[claim.owner] = local.successor(session, local.key, local.suffix)
        return local

    def move(self, local: LocalClaim) -> None:
        """Another client's claim has its key: give it another one."""
        self.stop_watching(local)
        prefix = local.keys.claims
        self.suffixes.collide(prefix)
        suffix = self.suffixes.take(prefix)
        self.by_owner[local.claim.owner] = local.successor(local.session, prefix + b"%x" % suffix, suffix)

    def adopt(self, claim: Claim, stored: StoredClaim, session: Session, *, held: bool = False) -> LocalClaim:
        """Remember a claim whose key this client did not make, or has forgotten."""
        local = LocalClaim(claim, self.keys_of(claim), session, stored.kv.key)
        local.got_key(stored.kv, stored.floor)
        if held:
            local.state = ClaimState.HELD
        self.by_owner[claim.owner] = local
        return local

    def of_grant(self, grant: Grant) -> LocalClaim | None:
        """The claim behind a grant, if this client has it."""
        local = self.by_owner.get(grant.claim.owner)
        return local if local is not None and local.fence == grant.fence else None

    def condition(self, grant: Grant) -> tuple[bytes, int, bytes] | None:
        """The key of a grant, the revision that created it, and the condition that it still exists."""
        local = self.of_grant(grant)
        if local is None:
            return None
        return local.key, local.created, rpc.created_at(local.key, local.created)

    def grant(self, local: LocalClaim, asked: float) -> Grant | Refusal:
        """The claim holds from now on. A refusal: too late, its deletion was sent."""
        if local.watch is not None:
            self.stop_watching(local)
        self.local_queue.leave(local.keys.claims, local.claim.owner)
        if not local.hold(asked, self.runtime.now()):
            return self.too_late(local)
        return local.grant(asked)

    def too_late(self, local: LocalClaim) -> Refusal:
        """It was not asked for in time, and its key is being deleted."""
        self.give_up(local)
        return Refusal(local.claim.key)

    # --- the end of a claim

    def stop_watching(self, local: LocalClaim) -> None:
        """No notification is needed any more."""
        if local.watch is not None:
            self.notifications.cancel(local.watch)
        local.watch = local.blocker = None

    def forget(self, local: LocalClaim) -> None:
        """Its key is gone."""
        if self._remove(local) and local.suffix is not None:
            self.suffixes.give_back(local.keys.claims, local.suffix)
        local.session.forget(local)

    def give_up(self, local: LocalClaim) -> None:
        """It is over, and its key may still be there: that is deleted before its session is kept alive again."""
        if self._remove(local) and local.suffix is not None:
            self.suffixes.abandon(local.keys.claims)
        local.give_up(self.runtime.now())

    def settle(self, local: LocalClaim) -> None:
        """The key of a claim that was given up is known to be gone."""
        local.session.forget(local)
        if local.suffix is not None:
            self.suffixes.recover(local.keys.claims, local.suffix)

    def _remove(self, local: LocalClaim) -> bool:
        """Take it off all lists of the client; False if its owner had another one by then."""
        owner = local.claim.owner
        self.stop_watching(local)
        self.local_queue.leave(local.keys.claims, owner)
        if self.by_owner.get(owner) is not local:
            return False
        del self.by_owner[owner]
        return True

    async def find(self, claim: Claim) -> StoredClaim | None:
        """The stored form of a claim that this client did not make, or has forgotten."""
        prefix = self.keys_of(claim).claims
        response = await self.connection.range(rpc.range_(prefix, after(prefix)))
        return next((stored for stored in map(read_claim, response.found) if stored.owner == claim.owner), None)
