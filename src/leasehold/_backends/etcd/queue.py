"""The store's queue of a lock, and the local queue of one client in front of it.

The store's queue is the keys of all claims, in the order of the revisions that created them. A waiter reads its
position, watches the claim in its way, and reads again when that is gone; the read that finds none in the way is the
grant.

etcd visits the whole queue of a lock for every claim that joins it, so a thousand tasks of one process that want one
lock would make each other slow, and other clients too. Beyond a few dozen they wait in the local queue, and join the
store's queue when a claim of their own client has left it, or holds the lock. They keep their order among themselves.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from leasehold._backends.etcd import transactions
from leasehold._backends.etcd.claims import ClaimState, encode_claim, read_claim, recheck
from leasehold._backends.etcd.sessions import SessionEnded
from leasehold.errors import BackendError
from leasehold.spi import Place
from leasehold.values import Grant, Mode, Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._backends.etcd.claims import Claims, LocalClaim, StoredClaim
    from leasehold._backends.etcd.fences import Floor
    from leasehold._backends.etcd.rpc import KeyValue, RangeResponse, TxnResponse
    from leasehold._backends.etcd.sessions import KeepAlive
    from leasehold.spi import Runtime, Signal
    from leasehold.values import Claim

__all__ = ["MOST_IN_STORE", "LocalQueue", "StoreQueue"]

MOST_IN_STORE = 64  # waiters of one client in the store's queue of one lock; its holders do not count


class StoreQueue:
    """The claims of one client that wait in the store's queues."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims

    async def turn(self, place: Place) -> Grant | Place | Refusal:
        """Whether the claim holds by now; asking keeps its key."""
        claims, claim = self._claims, place.claim
        asked = claims.runtime.now()
        local = claims.by_owner.get(claim.owner)
        if local is None:
            return await self._turn_of_unknown(place, asked)
        local.signal = place.signal
        if not local.keep_for_a_ttl(asked):
            return claims.too_late(local)
        session = local.session
        keep_alive: KeepAlive | None = None
        try:
            if session.is_due(asked):
                keep_alive = await claims.sessions.keep_alive(session)
            else:
                await claims.sessions.sweep(session)
        except SessionEnded:
            claims.forget(local)
            return Refusal(claim.key)
        return await self._read_position(local, asked, keep_alive)

    async def _turn_of_unknown(self, place: Place, asked: float) -> Grant | Place | Refusal:
        """The turn of a place that this client did not give."""
        claim = place.claim
        own = await self._claims.find(claim)
        if own is None:
            return Refusal(claim.key)
        return await self.repeated(claim, own, Refusal(claim.key, queue=place.ahead), asked, place)

    async def repeated(
        self, claim: Claim, own: StoredClaim, refusal: Refusal, asked: float, place: Place | None = None
    ) -> Grant | Place | Refusal:
        """A claim that has a key already, because an answer was lost: it keeps the key, and its ttl begins anew."""
        claims = self._claims
        if own.cooling or own.broken is not None:
            return refusal
        session = claims.sessions.borrow(own.kv.lease)
        try:
            keep_alive = await claims.sessions.keep_alive(session)
        except SessionEnded:  # nothing that lives on it may be granted any more
            await claims.connection.txn(transactions.release(own.kv.key, own.kv.written))
            return refusal
        local = claims.by_owner.get(claim.owner)
        if local is None or local.key != own.kv.key:
            local = claims.adopt(claim, own, session)
            local.ahead = refusal.queue if place is None else place.ahead + claim.capacity
        elif local.created != own.kv.created:
            local.session.forget(local)
            local.session = session
            local.got_key(own.kv, own.floor)
        if place is not None:
            local.signal = place.signal
        return await self._read_position(local, asked, keep_alive)

    async def _read_position(
        self, local: LocalClaim, asked: float, keep_alive: KeepAlive | None
    ) -> Grant | Place | Refusal:
        """Read the claim's position: one read of one revision, which needs a majority."""
        claims = self._claims
        response = await claims.connection.txn(self._position_request(local), reads=True)
        local.session.prove(keep_alive, response.header)
        if local.session.is_over(claims.runtime.now()):
            claims.forget(local)
            return Refusal(local.claim.key)
        if not local.keep_for_a_ttl(asked):
            return claims.too_late(local)
        return self._place(local) if len(response.results) == 1 else await self._moved(local, asked, response)

    def _position_request(self, local: LocalClaim) -> bytes:
        if local.blocker is None or local.watch is None or not self._claims.notifications.is_active(local.watch):
            return transactions.position(local.keys, local.key, local.created, local.limit)
        return transactions.position_if_moved(local.keys, local.key, local.created, local.limit, local.blocker)

    async def _moved(self, local: LocalClaim, asked: float, response: TxnResponse) -> Grant | Place | Refusal:
        claims, claim = self._claims, local.claim
        own = response.read(transactions.QUEUE_OWN).found
        if not own or own[0].created != local.created:
            claims.forget(local)
            return Refusal(claim.key)
        if own[0].value != local.value:  # as we wrote it, it is neither cooling nor broken
            stored = read_claim(own[0])
            if stored.cooling or stored.broken is not None:
                return Refusal(claim.key, stored.holder)
        local.written = own[0].written
        in_the_way = response.read(transactions.QUEUE_AHEAD).found
        if len(in_the_way) < claim.capacity:
            floor = claims.fences.learn(local.keys.floor, response.read(transactions.QUEUE_FLOOR))
            return await self._admitted(local, floor, asked)
        return self.stay(local, in_the_way, response.read(transactions.QUEUE_FIRST), response.header.revision)

    async def _admitted(self, local: LocalClaim, floor: Floor, asked: float) -> Grant | Refusal:
        """No claim is in the way. The value is written anew if the floor has risen, or if waiters watch this key."""
        is_watched = local.watch is not None and local.claim.mode is Mode.PERMIT
        if local.state is not ClaimState.HELD and (floor.value > local.floor or is_watched):
            local.floor = max(local.floor, floor.value)
            local.value = value = encode_claim(local.claim, local.floor, time.time())
            try:
                response = await self._claims.connection.txn(transactions.mark_granted(local.key, local.created, value))
            except BackendError:
                local.written = 0  # the next renewal reads it; waiters behind us read their position by themselves
            else:
                if not response.succeeded:  # its key is gone
                    self._claims.forget(local)
                    return Refusal(local.claim.key)
                local.written = response.header.revision
        return self._claims.grant(local, asked)

    # --- waiting

    def stay(self, local: LocalClaim, in_the_way: Sequence[KeyValue], first: RangeResponse, seen: int) -> Place:
        """Wait for the last claim in the way; as the first waiter for a permit, for any claim that leaves.

        A waiter for a permit behind other waiters is woken by their grant as well: it is the first one then.
        """
        claims = self._claims
        local.first = read_claim(first.found[0]).holder
        local.ahead = min(local.ahead, first.total - 1)
        claims.stop_watching(local)
        signal = self._signal(local)
        is_permit = local.claim.mode is Mode.PERMIT
        if is_permit and len(in_the_way) == local.claim.capacity:
            local.watch = claims.notifications.watch(*local.keys.ahead, seen, signal)
        else:
            local.blocker = None if is_permit else (in_the_way[0].key, in_the_way[0].created)
            local.watch = claims.notifications.watch(in_the_way[0].key, b"", seen, signal, puts=is_permit)
        return self._place(local)

    def _place(self, local: LocalClaim) -> Place:
        claim = local.claim
        return Place(claim, self._signal(local), recheck(claim), max(0, local.ahead - claim.capacity), local.first)

    def _signal(self, local: LocalClaim) -> Signal:
        if local.signal is None:
            local.signal = self._claims.runtime.signal()
        return local.signal


class LocalQueue:
    """Waiters inside one client, by lock; and which of its claims wait in the store's queues."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._guard = runtime.guard()
        self._in_store: dict[bytes, set[str]] = {}  # owners that wait in the store's queue, or are about to
        self._queues: dict[bytes, deque[str]] = {}
        self._signals: dict[str, Signal] = {}  # by owner
        self._until: dict[str, float] = {}  # by owner: a waiter that has not asked again by then is dead

    def __contains__(self, owner: str) -> bool:
        return owner in self._signals

    def enter(self, lock: bytes, owner: str) -> bool:
        """Whether the claim may join the store's queue now; from then on it counts there."""
        with self._guard:
            if lock not in self._queues:  # the common case: no claim waits here
                in_store = self._in_store.setdefault(lock, set())
                if len(in_store) < MOST_IN_STORE:
                    in_store.add(owner)
                    return True
        if not self.has_room(lock, owner):
            return False
        self.move_to_store(lock, owner)
        return True

    def has_room(self, lock: bytes, owner: str) -> bool:
        """Whether one more claim of this client may join the store's queue, and this one is the first here."""
        if len(self._in_store.get(lock, ())) >= MOST_IN_STORE:
            return False
        return lock not in self._queues or self._is_first(lock, owner)

    def _is_first(self, lock: bytes, owner: str) -> bool:
        """Whether no waiter here is before this one; dead ones are removed."""
        while (first := self._first(lock)) is not None and self._until.get(first, 0.0) < self._runtime.now():
            self.leave(lock, first)
        return first is None or first == owner

    def _first(self, lock: bytes) -> str | None:
        with self._guard:
            queue = self._queues.get(lock)
            return queue[0] if queue else None

    def wait_here(self, lock: bytes, owner: str, until: float) -> tuple[Signal, int]:
        """A place at the end, or the one that it has: its signal, and how many are before it at most."""
        with self._guard:
            self._until[owner] = until
            signal = self._signals.get(owner)
            queue = self._queues.setdefault(lock, deque())
            if signal is None:
                signal = self._signals[owner] = self._runtime.signal()
                queue.append(owner)
            return signal, len(queue) - 1

    def move_to_store(self, lock: bytes, owner: str) -> None:
        """It joins the store's queue; if there is room for another one, the next waiter here may follow."""
        with self._guard:
            if owner in self._signals:
                self._remove(lock, owner)
            in_store = self._in_store.setdefault(lock, set())
            in_store.add(owner)
            has_room = len(in_store) < MOST_IN_STORE and lock in self._queues
        if has_room:
            self._wake_first(lock)

    def leave(self, lock: bytes, owner: str) -> None:
        """It waits no longer: it holds the lock, or has given up."""
        with self._guard:
            if owner in self._signals:
                self._remove(lock, owner)
            in_store = self._in_store.get(lock)
            makes_room = in_store is not None and owner in in_store
            if in_store is not None:
                in_store.discard(owner)
                if not in_store:
                    del self._in_store[lock]
            makes_room = makes_room and lock in self._queues
        if makes_room:
            self._wake_first(lock)

    def close(self) -> None:
        """Wake all waiters: their next call finds that the client is closed."""
        for signal in list(self._signals.values()):
            signal.set()

    def _remove(self, lock: bytes, owner: str) -> None:
        self._until.pop(owner, None)
        del self._signals[owner]
        queue = self._queues[lock]
        queue.remove(owner)
        if not queue:
            del self._queues[lock]

    def _wake_first(self, lock: bytes) -> None:
        """There is room in the store's queue: wake the first. If it does not react, the others ask by themselves."""
        first = self._first(lock)
        signal = None if first is None else self._signals.get(first)
        if signal is not None:
            signal.set()
