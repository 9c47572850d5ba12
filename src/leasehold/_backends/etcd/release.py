"""Releasing a grant: its key is deleted or, with time left of its `min_hold`, kept until that is over.

The key of a grant that is kept stays where it is in the queue, marked as cooling, on a lease of its own that ends with
the `min_hold`. That holds for a grant that an operator has broken, too: its release returns the break, and the next
holder has to wait for the rest of the `min_hold` as after any other release.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leasehold._backends.etcd import rpc, transactions
from leasehold._backends.etcd.claims import COOLING, read_claim
from leasehold._backends.etcd.renew import reason_of_loss
from leasehold.errors import BackendUnavailable
from leasehold.values import Loss, LossReason

if TYPE_CHECKING:
    from leasehold._backends.etcd.claims import Claims
    from leasehold._backends.etcd.rpc import KeyValue
    from leasehold.values import Claim, Grant

__all__ = ["Releaser"]

ROUNDS = 5  # how often a release is made anew because the key was written meanwhile


class Releaser:
    """Releases of one client's grants."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._connection = claims.connection
        self._runtime = claims.runtime

    async def release(self, grant: Grant) -> bool | Loss:
        """Free this grant's key and no other. A `Loss`: the grant had been broken; it is released all the same."""
        local = self._claims.of_grant(grant)
        if local is None:
            return await self._release_unknown(grant)
        try:
            left = self._min_hold_left(grant.claim, local.granted_at)
            if left > 0:
                found = (await self._connection.range(rpc.read(local.key))).found
                outcome = await self._cool(grant.claim, found, local.created, left)
            else:
                outcome = await self._delete(grant.claim, local.key, local.written, local.created)
        except BaseException:  # etcd may not have applied it: the key is deleted before the session is kept alive again
            local.give_up(self._runtime.now())
            raise
        self._claims.forget(local)
        return outcome

    async def _release_unknown(self, grant: Grant) -> bool | Loss:
        """Release a grant that another client got."""
        claim, stored = grant.claim, await self._claims.find(grant.claim)
        if stored is None or stored.fence != grant.fence:
            return await self._gone(claim)
        if stored.cooling:
            return _gone_before(stored.broken)
        if claim.min_hold > 0:
            return await self._cool(claim, (stored.kv,), stored.kv.created, claim.min_hold)
        return await self._delete(claim, stored.kv.key, stored.kv.written, stored.kv.created, stored.broken)

    def _min_hold_left(self, claim: Claim, granted_at: float | None) -> float:
        """How long the lock has to be kept; counted from when the grant was known here, so never too short."""
        if claim.min_hold <= 0:
            return 0.0
        held = 0.0 if granted_at is None else self._runtime.now() - granted_at
        return claim.min_hold - held

    async def _delete(
        self, claim: Claim, key: bytes, written: int, created: int, broken: str | None = None
    ) -> bool | Loss:
        """Delete the key as it was last written. If it was written meanwhile, read it and try again."""
        for _ in range(ROUNDS):
            response = await self._connection.txn(transactions.release(key, written))
            if response.succeeded:
                return _released(broken)
            found = response.read(0).found
            if not found or found[0].created != created:
                return await self._gone(claim)
            stored = read_claim(found[0])
            if stored.cooling:
                return _gone_before(stored.broken)
            written, broken = stored.kv.written, stored.broken
        raise self._contended()

    async def _cool(self, claim: Claim, found: tuple[KeyValue, ...], created: int, left: float) -> bool | Loss:
        """Keep the key for so long on a lease of its own. If it was written meanwhile, read it and try again."""
        lease = 0
        for _ in range(ROUNDS):
            if not found or found[0].created != created:
                return await self._gone(claim)
            stored = read_claim(found[0])
            if stored.cooling:
                return _gone_before(stored.broken)
            lease = lease or await self._claims.sessions.separate(max(1, math.ceil(left)))
            response = await self._connection.txn(transactions.cool(stored.kv, COOLING + stored.with_(), lease))
            if response.succeeded:
                return _released(stored.broken)
            found = response.read(0).found
        raise self._contended()

    async def _gone(self, claim: Claim) -> bool | Loss:
        """The key is not this grant's any more: it was broken at once, or lost otherwise."""
        loss = await reason_of_loss(self._claims, self._claims.keys_of(claim).break_note(claim.owner))
        return loss if loss.reason is LossReason.BROKEN else False

    def _contended(self) -> BackendUnavailable:
        return BackendUnavailable(
            "other clients write this claim's key at the same time; try again", backend=self._connection.label
        )


def _released(broken: str | None) -> bool | Loss:
    return True if broken is None else Loss(LossReason.BROKEN, broken)


def _gone_before(broken: str | None) -> bool | Loss:
    """It was released already, and is kept for its `min_hold`: a release that is sent again gets the same break."""
    return False if broken is None else Loss(LossReason.BROKEN, broken)
