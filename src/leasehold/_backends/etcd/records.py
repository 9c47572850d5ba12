"""Records: small values beside the locks, each on a lease of its own, written under a fence.

A record is two keys. `fence` has the highest fence that was seen, as eight bytes, and is kept for a day or as long as
the record; `value` has the value and is kept for the record's ttl. Both are read and compared in one transaction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold._backends.etcd import rpc, transactions
from leasehold._backends.etcd.errors import LeaseGone
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable
from leasehold.kit.rules import FENCE_KEPT
from leasehold.values import Reading, Record

if TYPE_CHECKING:
    from leasehold._backends.etcd.claims import Claims
    from leasehold._backends.etcd.rpc import KeyValue

__all__ = ["LARGEST_VALUE", "Records"]

LARGEST_VALUE = 1_000_000  # etcd takes requests of 1.5 MiB, unless it is configured otherwise
ROUNDS = 8


@dataclass(frozen=True, slots=True)
class _Stored:
    """The two keys as they were read."""

    fence: KeyValue | None
    value: KeyValue | None

    @property
    def highest(self) -> int:
        return 0 if self.fence is None else int.from_bytes(self.fence.value, "big")


class Records:
    """The records of a store."""

    def __init__(self, claims: Claims) -> None:
        self._connection = claims.connection
        self._keys = claims.keys
        self._sessions = claims.sessions

    async def read(self, key: str, fence: int = 0) -> Reading:
        """The record; from now on writes under a lower fence are refused."""
        stored = await self._stored(key)
        for _ in range(ROUNDS):
            if stored.highest >= fence:
                return await self._reading(key, stored)
            lease = await self._fence_lease(stored, FENCE_KEPT)
            fence_key, _ = self._keys.record(key)
            put = rpc.op_put(rpc.put(fence_key, fence.to_bytes(8, "big"), lease))
            written = await self._write(key, stored, [put])
            await self._tidy(stored, lease, written=written)
            stored = await self._stored(key)
            if written:
                return await self._reading(key, stored)
        raise self._contended()

    async def write(self, record: Record) -> bool:
        """Store it unless a higher fence was seen."""
        if len(record.value) > LARGEST_VALUE:
            raise BackendRejected(
                f"a record of {len(record.value)} bytes is too large for etcd; store at most {LARGEST_VALUE} bytes",
                backend=self._connection.label,
            )
        fence_key, value_key = self._keys.record(record.key)
        for _ in range(ROUNDS):
            stored = await self._stored(record.key)
            if stored.highest > record.fence:
                return False
            fence_lease = await self._fence_lease(stored, max(FENCE_KEPT, record.ttl))
            lease = await self._sessions.separate(max(1, math.ceil(record.ttl)))
            puts = [
                rpc.op_put(rpc.put(fence_key, record.fence.to_bytes(8, "big"), fence_lease)),
                rpc.op_put(rpc.put(value_key, record.value, lease)),
            ]
            written = await self._write(record.key, stored, puts)
            await self._tidy(stored, fence_lease, written=written)
            if written:
                if stored.value is not None:
                    await self._revoke(stored.value.lease)
                return True
            await self._revoke(lease)
        raise self._contended()

    async def _stored(self, key: str) -> _Stored:
        response = await self._connection.txn(transactions.read_all(self._keys.record(key)), reads=True)
        fence, value = response.read(0).found, response.read(1).found
        if fence and len(fence[0].value) != 8:
            raise BackendRejected(
                f"the value of {fence[0].key!r} was not written by leasehold; keep other programs off these keys, or "
                "choose another root for the locks: etcd://host/ROOT",
                backend=self._connection.label,
            )
        return _Stored(fence[0] if fence else None, value[0] if value else None)

    async def _write(self, key: str, stored: _Stored, puts: list[bytes]) -> bool:
        """Write if nothing has changed since it was read."""
        fence_key, value_key = self._keys.record(key)
        unchanged = [rpc.written_at(fence_key, 0 if stored.fence is None else stored.fence.written)]
        unchanged += [rpc.written_at(value_key, 0 if stored.value is None else stored.value.written)]
        parts = [*map(rpc.condition, unchanged), *map(rpc.then, puts)]
        try:
            return (await self._connection.txn(b"".join(parts))).succeeded
        except LeaseGone:
            return False

    async def _fence_lease(self, stored: _Stored, ttl: float) -> int:
        """The fence's lease, with its time begun anew, if it was made for so long; else a new one."""
        if stored.fence is not None:
            alive = await self._connection.keep_alive(stored.fence.lease)
            if alive.ttl >= ttl:
                return stored.fence.lease
        return await self._sessions.separate(math.ceil(ttl))

    async def _reading(self, key: str, stored: _Stored) -> Reading:
        record = None
        if stored.value is not None:
            left = (await self._connection.time_to_live(stored.value.lease)).ttl
            if left >= 0:  # etcd gives whole seconds, rounded down
                record = Record(key, stored.value.value, stored.highest, left + 0.5)
        return Reading(record, stored.highest, await self._connection.time())

    async def _tidy(self, stored: _Stored, lease: int, *, written: bool) -> None:
        """Revoke the lease that the fence is not on: the new one, or the one before it."""
        before = 0 if stored.fence is None else stored.fence.lease
        if before != lease and (before or not written):
            await self._revoke(before if written else lease)

    async def _revoke(self, lease: int) -> None:
        """End a lease whose key is on another one now; if this fails, it expires."""
        try:
            await self._connection.revoke(lease)
        except (BackendError, LeaseGone):
            return

    def _contended(self) -> BackendUnavailable:
        return BackendUnavailable(
            "other clients write this record at the same time; try again", backend=self._connection.label
        )
