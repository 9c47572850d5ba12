"""Records: small values beside the locks, each on a lease of its own, written under a fence.

A record is two keys. `fence` has the highest fence that was seen, as eight bytes, and lives a day or as long as the
record; `value` has the value and lives for the record's ttl. Both are read and compared in one transaction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold.backends.etcd import messages, requests
from leasehold.backends.etcd.trouble import LeaseGone
from leasehold.backends.rules import FENCE_KEPT
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable
from leasehold.values import Reading, Record

if TYPE_CHECKING:
    from leasehold.backends.etcd.answers import KeyValue
    from leasehold.backends.etcd.toolbox import Toolbox

__all__ = ["LARGEST_VALUE", "Records"]

LARGEST_VALUE = 1_000_000  # etcd takes requests of 1.5 MiB, unless it was told otherwise
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

    def __init__(self, tools: Toolbox) -> None:
        self._connection = tools.connection
        self._layout = tools.layout
        self._sessions = tools.sessions

    async def read(self, key: str, fence: int = 0) -> Reading:
        """The record; and let no lower fence write from now on."""
        stored = await self._stored(key)
        for _ in range(ROUNDS):
            if stored.highest >= fence:
                return await self._reading(key, stored)
            lease = await self._fence_lease(stored, FENCE_KEPT)
            fence_key, _ = self._layout.record(key)
            put = messages.op_put(messages.put(fence_key, fence.to_bytes(8, "big"), lease))
            written = await self._write(key, stored, [put])
            await self._tidy(stored, lease, written=written)
            stored = await self._stored(key)
            if written:
                return await self._reading(key, stored)
        raise self._contended()

    async def write(self, record: Record) -> bool:
        """Store it unless a higher fence was here."""
        if len(record.value) > LARGEST_VALUE:
            raise BackendRejected(
                f"a record of {len(record.value)} bytes is too large for etcd; at most {LARGEST_VALUE}",
                backend=self._connection.label,
            )
        fence_key, value_key = self._layout.record(record.key)
        for _ in range(ROUNDS):
            stored = await self._stored(record.key)
            if stored.highest > record.fence:
                return False
            fence_lease = await self._fence_lease(stored, max(FENCE_KEPT, record.ttl))
            lease = await self._sessions.separate(max(1, math.ceil(record.ttl)))
            puts = [
                messages.op_put(messages.put(fence_key, record.fence.to_bytes(8, "big"), fence_lease)),
                messages.op_put(messages.put(value_key, record.value, lease)),
            ]
            written = await self._write(record.key, stored, puts)
            await self._tidy(stored, fence_lease, written=written)
            if written:
                if stored.value is not None:
                    await self._give_back(stored.value.lease)
                return True
            await self._give_back(lease)
        raise self._contended()

    async def _stored(self, key: str) -> _Stored:
        answer = await self._connection.txn(requests.read_all(self._layout.record(key)), reads=True)
        fence, value = answer.read(0).found, answer.read(1).found
        if fence and len(fence[0].value) != 8:
            raise BackendRejected(f"{fence[0].key!r} has a value that is not ours; somebody else uses these keys")
        return _Stored(fence[0] if fence else None, value[0] if value else None)

    async def _write(self, key: str, stored: _Stored, puts: list[bytes]) -> bool:
        """Write if nothing has changed since it was read."""
        fence_key, value_key = self._layout.record(key)
        unchanged = [messages.written_at(fence_key, 0 if stored.fence is None else stored.fence.written)]
        unchanged += [messages.written_at(value_key, 0 if stored.value is None else stored.value.written)]
        parts = [*map(messages.condition, unchanged), *map(messages.then, puts)]
        try:
            return (await self._connection.txn(b"".join(parts))).succeeded
        except LeaseGone:
            return False

    async def _fence_lease(self, stored: _Stored, ttl: float) -> int:
        """The lease that the fence has, if it was made for so long; it begins anew. Else a new one."""
        if stored.fence is not None:
            alive = await self._connection.keep_alive(stored.fence.lease, timeout=3.0)
            if alive.ttl >= ttl:
                return stored.fence.lease
        return await self._sessions.separate(math.ceil(ttl))

    async def _reading(self, key: str, stored: _Stored) -> Reading:
        record = None
        if stored.value is not None:
            left = (await self._connection.time_to_live(stored.value.lease)).ttl
            if left >= 0:  # etcd tells whole seconds, rounded down
                record = Record(key, stored.value.value, stored.highest, left + 0.5)
        return Reading(record, stored.highest, await self._connection.time())

    async def _tidy(self, stored: _Stored, lease: int, *, written: bool) -> None:
        """Give back the lease that the fence does not live on: the new one, or the one before it."""
        before = 0 if stored.fence is None else stored.fence.lease
        if before != lease and (before or not written):
            await self._give_back(before if written else lease)

    async def _give_back(self, lease: int) -> None:
        """A lease whose key lives on another one now; if this fails, it ends by itself."""
        try:
            await self._connection.revoke(lease)
        except (BackendError, LeaseGone):
            return

    def _contended(self) -> BackendUnavailable:
        return BackendUnavailable("others write this record all the time; try again", backend=self._connection.label)
