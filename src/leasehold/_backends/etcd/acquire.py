"""Acquiring a lock, and withdrawing a claim."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold._backends.etcd import transactions
from leasehold._backends.etcd.claims import encode_claim, read_claim, recheck
from leasehold._backends.etcd.errors import LeaseGone
from leasehold._backends.etcd.queue import MOST_IN_STORE
from leasehold._backends.etcd.rpc import KeyValue
from leasehold._backends.etcd.transactions import NewClaim
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable, OutcomeUnknown
from leasehold.kit.rules import check_kind
from leasehold.spi import Place
from leasehold.values import Grant, Mode, Refusal

if TYPE_CHECKING:
    from leasehold._backends.etcd.claims import Claims, LocalClaim, StoredClaim
    from leasehold._backends.etcd.fences import Floor
    from leasehold._backends.etcd.keys import LockKeys
    from leasehold._backends.etcd.queue import StoreQueue
    from leasehold._backends.etcd.rpc import TxnResponse
    from leasehold.values import Claim

__all__ = ["Acquirer"]

MISSED = 3  # rechecks after which a waiter of the local queue is dead
LATEST_COPY = 600.0  # seconds in which a member that stood still may apply a request that was withdrawn
ROUNDS = 8  # how often a request is made anew because its conditions did not hold any more


@dataclass(slots=True)
class _Attempt:
    """One call: when it began, and what its last request relied on."""

    keys: LockKeys
    waits: bool
    asked: float
    floor: Floor
    highest: int = 0
    room_at: int = 0  # the revision at which a permit was free


class Acquirer:
    """New claims of one client."""

    def __init__(self, claims: Claims, queue: StoreQueue) -> None:
        self._claims = claims
        self._queue = queue

    async def try_acquire(self, claim: Claim) -> Grant | Refusal:
        """Grant now or not at all."""
        outcome = await self._acquire(claim, self._claims.keys_of(claim), waits=False)
        return Refusal(claim.key, outcome.holder, None, outcome.ahead) if isinstance(outcome, Place) else outcome

    async def join(self, claim: Claim) -> Grant | Place | Refusal:
        """Grant now or give a place in the store's queue; or in the local one, when this client has many waiters."""
        local_queue, keys = self._claims.local_queue, self._claims.keys.of(claim.key, claim.mode, claim.capacity)
        if claim.owner in self._claims.by_owner:
            local_queue.move_to_store(keys.claims, claim.owner)
        elif not local_queue.enter(keys.claims, claim.owner):
            until = self._claims.runtime.now() + MISSED * recheck(claim)
            signal, ahead = local_queue.wait_here(keys.claims, claim.owner, until)
            return Place(claim, signal, recheck(claim), MOST_IN_STORE + ahead)
        try:
            outcome = await self._acquire(claim, keys, waits=True)
        except BaseException:
            local_queue.leave(keys.claims, claim.owner)
            raise
        if isinstance(outcome, Refusal):
            local_queue.leave(keys.claims, claim.owner)
        return outcome

    async def _acquire(self, claim: Claim, keys: LockKeys, *, waits: bool) -> Grant | Place | Refusal:
        claims = self._claims
        attempt = _Attempt(keys, waits, claims.runtime.now(), await claims.fences.floor(keys.floor))
        try:
            for _ in range(ROUNDS):
                outcome = await self._send(claim, attempt)
                if outcome is not None:
                    return outcome
        except (BackendUnavailable, BackendRejected):
            self._not_applied(claim)
            raise
        except OutcomeUnknown:
            local = claims.by_owner.get(claim.owner)
            if local is not None:
                local.got_no_answer()
            raise
        self._not_applied(claim)
        raise BackendUnavailable(
            f"other clients changed this lock {ROUNDS} times while it was being acquired; try again",
            backend=claims.connection.label,
        )

    def _not_applied(self, claim: Claim) -> None:
        """Forget a claim without a key, unless an earlier request of it may have made one."""
        local = self._claims.by_owner.get(claim.owner)
        if local is not None and local.has_no_key:
            self._claims.forget(local)

    async def _send(self, claim: Claim, attempt: _Attempt) -> Grant | Place | Refusal | None:
        """One request; None: repeat it with what is known now."""
        claims, keys = self._claims, attempt.keys
        session, keep_alive = await claims.sessions.take(claim.ttl)
        local = claims.open(claim, keys, session)
        attempt.highest = claims.fences.highest(keys.floor)
        value = encode_claim(claim, attempt.floor.value, time.time())
        new = NewClaim(keys, claim.owner, local.key, value, session.lease, attempt.floor.written)
        if not local.keep_for_a_ttl(attempt.asked):  # a key of an earlier request is being deleted
            return claims.too_late(local)
        if not local.created:
            local.value = value
        if attempt.waits:
            request = transactions.join(new, local.limit)
        else:
            request = transactions.try_acquire(new, attempt.room_at)
        try:
            response = await claims.connection.txn(request)
        except LeaseGone:
            session.end()
            return None
        if keep_alive is not None:
            session.prove(keep_alive, response.header)
        if response.succeeded:
            if local.session is not session:  # its key on the earlier session is gone: this request has replaced it
                local.session.forget(local)
                local.session = session
            revision = response.header.revision
            local.got_key(KeyValue(local.key, revision, revision, value), attempt.floor.value)
            return await self._inserted(local, response, attempt)
        if not response.results:
            response = await claims.connection.txn(transactions.explain(new), reads=True)
        return await self._refused(local, attempt, response)

    async def _inserted(self, local: LocalClaim, response: TxnResponse, attempt: _Attempt) -> Grant | Place | Refusal:
        """The claim has its key; whether it holds by that."""
        try:
            self._claims.fences.check(local.keys.floor, attempt.floor, local.created, attempt.highest)
        except BackendError:
            await self.withdraw(local.claim)
            raise
        if not attempt.waits:
            return self._claims.grant(local, attempt.asked)
        newest = response.read(1)
        in_the_way = [kv for kv in newest.found if kv.created < local.created]
        if len(in_the_way) < local.claim.capacity:
            return self._claims.grant(local, attempt.asked)
        local.ahead = newest.total - (
            local.claim.mode is not Mode.SHARED
        )  # the range has the claim itself, if not shared
        local.keep_for_a_ttl(attempt.asked)
        return self._queue.stay(local, in_the_way, response.read(2), response.header.revision)

    async def _refused(
        self, local: LocalClaim, attempt: _Attempt, response: TxnResponse
    ) -> Grant | Place | Refusal | None:
        """Why the claim got no key; None: repeat the request with what is known now."""
        claims, claim, keys = self._claims, local.claim, local.keys
        floor = claims.fences.learn(keys.floor, response.read(transactions.FLOOR))
        claims.fences.check(keys.floor, floor, response.header.revision, attempt.highest)
        first, under_key = response.read(transactions.FIRST), response.read(transactions.OWN).found
        stored = [read_claim(kv) for kv in (*under_key, *first.found)]
        own = next((each for each in stored if each.owner == claim.owner), None)
        refusal = Refusal(claim.key, stored[-1].holder if first.found else None, None, max(0, first.total - 1))
        if own is not None:
            return await self._queue.repeated(claim, own, refusal, attempt.asked)
        if not response.read(transactions.WITHDRAWN).found:
            if first.found:
                self._check_kind(local, first.found[0].key)
            if under_key:
                claims.move(local)
            ahead = response.read(transactions.AHEAD).total
            if attempt.waits or floor != attempt.floor or ahead < claim.capacity:
                attempt.floor, attempt.room_at = floor, response.header.revision if ahead else 0
                return None
        claims.forget(claims.by_owner.get(claim.owner, local))
        return refusal

    def _check_kind(self, local: LocalClaim, key: bytes) -> None:
        first = self._claims.keys.parse(key)
        try:
            check_kind(local.claim, first.mode, first.capacity, self._claims.connection.label)
        except BaseException:
            self._claims.forget(local)
            raise

    # --- withdrawing

    async def withdraw(self, claim: Claim, *, doubt: bool = True) -> None:
        """Undo the claim, whatever became of it; with doubt, refuse late copies of it for a while."""
        claims = self._claims
        undo = self._withdraw if doubt else self._delete
        claims.local_queue.leave(claims.keys_of(claim).claims, claim.owner)
        local = claims.by_owner.get(claim.owner)
        if local is not None:
            claims.give_up(local)
            await undo(claim, local.key, local.value)
            claims.settle(local)
            return
        stored = await claims.find(claim)
        if stored is not None and not stored.cooling:
            await undo(claim, stored.kv.key, stored.kv.value)
        elif doubt:
            await self._withdraw(claim)

    async def _delete(self, claim: Claim, key: bytes, value: bytes) -> None:
        """No request of this claim is under way: delete its key, and leave no mark."""
        response = await self._claims.connection.txn(transactions.delete_if(key, value))
        if not response.succeeded:
            await self._delete_changed(claim, [read_claim(kv) for kv in response.read(0).found])

    async def _withdraw(self, claim: Claim, key: bytes = b"", value: bytes = b"") -> None:
        claims, mark = self._claims, self._claims.keys_of(claim).withdrawal_mark(claim.owner)
        for _ in range(ROUNDS):
            session, keep_alive = await claims.sessions.take(claim.ttl)
            session.marks[mark] = claims.runtime.now() + max(session.ttl, LATEST_COPY)
            request = transactions.refuse(mark, session.lease)
            if key:
                request = transactions.withdraw(key, value, mark, session.lease)
            try:
                response = await claims.connection.txn(request)
            except LeaseGone:
                session.end()
                continue
            session.prove(keep_alive, response.header)
            if not response.succeeded:
                await self._delete_changed(claim, [read_claim(kv) for kv in response.read(0).found])
            return

    async def _delete_changed(self, claim: Claim, found: list[StoredClaim]) -> None:
        """The claim's value is not the one that we wrote: delete its key all the same, unless it is cooling."""
        for stored in found:
            if stored.owner == claim.owner and not stored.cooling:
                await self._claims.connection.txn(transactions.release(stored.kv.key, stored.kv.written))
