"""For operators: which claims hold and wait for a lock, breaking a lock, raising fences. No claim depends on it."""

from __future__ import annotations

import time
from itertools import groupby
from typing import TYPE_CHECKING

from leasehold._backends.etcd import rpc, transactions
from leasehold._backends.etcd.claims import read_claim
from leasehold._backends.etcd.rpc import Sort
from leasehold.values import Holding, LockState, Mode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._backends.etcd.claims import Claims, StoredClaim
    from leasehold._backends.etcd.keys import ClaimKey, Range
    from leasehold._backends.etcd.rpc import KeyValue

__all__ = ["Inspector"]

PAGE = 2_000
NOTE_KEPT = 10  # seconds for which a holder can learn why its key is gone
ROUNDS = 5
Claimant = tuple["ClaimKey", "StoredClaim"]


class Inspector:
    """Reads the locks of all clients."""

    def __init__(self, claims: Claims) -> None:
        self._connection = claims.connection
        self._keys = claims.keys
        self._sessions = claims.sessions
        self._fences = claims.fences

    async def inspect(self, key: str) -> LockState | None:
        """The holders and waiters of a lock; None when there are none."""
        claimants = await self._claimants(key)
        return await self._state(key, claimants, {}) if claimants else None

    async def states(self, prefix: str) -> Sequence[LockState]:
        """All locks in use whose key starts with this prefix."""
        found = await self._pages(self._keys.queues(prefix))
        claimants = [(self._keys.parse(kv.key), read_claim(kv)) for kv in found]
        claimants.sort(key=_by_key_and_age)
        times: dict[int, float] = {}
        return [await self._state(key, list(group), times) for key, group in groupby(claimants, _key)]

    async def _claimants(self, key: str) -> list[Claimant]:
        """All claims of a lock, oldest first."""
        found = (await self._connection.range(rpc.range_(*self._keys.queue(key), sort=Sort.OLDEST))).found
        return [(self._keys.parse(kv.key), read_claim(kv)) for kv in found]

    async def _pages(self, where: Range) -> list[KeyValue]:
        """Everything in a range, as it was at one revision."""
        start, end = where
        found: list[KeyValue] = []
        revision = 0
        while True:
            page = await self._connection.range(rpc.range_(start, end, limit=PAGE, revision=revision))
            found += page.found
            if not page.more:
                return found
            start, revision = page.found[-1].key + b"\x00", page.header.revision

    async def _state(self, key: str, claimants: list[Claimant], times: dict[int, float]) -> LockState:
        holders = count_holders(claimants)
        first = claimants[0][0]
        now = time.time()
        holdings = [
            Holding(
                stored.holder,
                stored.fence,
                max(0.0, now - stored.since),
                await self._time_left(stored.kv.lease, times),
                stored.broken,
                stored.cooling,
            )
            for _, stored in claimants[:holders]
        ]
        waiting = tuple(stored.holder for _, stored in claimants[holders:])
        return LockState(key, first.mode, first.capacity, tuple(holdings), waiting)

    async def _time_left(self, lease: int, times: dict[int, float]) -> float:
        """Read once for each lease; etcd gives whole seconds, rounded down."""
        if lease not in times:
            left = await self._connection.time_to_live(lease)
            times[lease] = max(0.0, min(left.ttl + 0.5, left.granted))
        return times[lease]

    # --- changing something

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        """End the grant with this fence; unless `now`, its key stays for the rest of the ttl, on a lease of its own."""
        for _ in range(ROUNDS):
            stored = await self._holder(key, fence)
            if stored is None:
                return False
            left = (await self._connection.time_to_live(stored.kv.lease)).ttl
            lease = await self._sessions.separate(max(NOTE_KEPT if now else 1, left + 1))
            response = await self._connection.txn(self._break_request(key, stored, reason, lease, now=now))
            if response.succeeded:
                return True
            await self._connection.revoke(lease)
        return False

    def _break_request(self, key: str, stored: StoredClaim, reason: str, lease: int, *, now: bool) -> bytes:
        if not now:
            return transactions.put_if_unchanged(stored.kv, stored.with_(broken=reason), lease)
        _, mode, capacity = self._keys.parse(stored.kv.key)
        keys = self._keys.of(key, mode, capacity)
        return transactions.break_now(stored.kv, keys, stored.owner, reason.encode(), lease)

    async def _holder(self, key: str, fence: int) -> StoredClaim | None:
        claimants = await self._claimants(key)
        holders = [stored for _, stored in claimants[: count_holders(claimants)]]
        return next((stored for stored in holders if stored.fence == fence and not stored.cooling), None)

    async def raise_fence(self, key: str, fence: int) -> int:
        """Make every later fence of this key, and of its namespace, higher than this."""
        return await self._fences.raise_above(self._keys.floor(key), fence, self._keys.queue(key))


def count_holders(claimants: Sequence[Claimant]) -> int:
    """How many of the claims hold, oldest first; holders are always before waiters."""
    if not claimants:
        return 0
    first = claimants[0][0]
    if first.mode is Mode.EXCLUSIVE:
        return 1
    if first.mode is Mode.PERMIT:
        return min(first.capacity, len(claimants))
    return next(
        (number for number, (key, _) in enumerate(claimants) if key.mode is Mode.EXCLUSIVE),
        len(claimants),
    )


def _key(claimant: Claimant) -> str:
    return claimant[0].key


def _by_key_and_age(claimant: Claimant) -> tuple[str, int]:
    return claimant[0].key, claimant[1].kv.created
