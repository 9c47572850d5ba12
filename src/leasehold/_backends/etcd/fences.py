"""Fences: the floor of a namespace plus the revision that created the claim's key.

Revisions rise with every change of the whole cluster, so a later claim has a higher one, and nothing has to be kept for
a name. Two events can bring revisions down: a restore from an old snapshot, and a move from another store. The floor,
stored once for each namespace, lifts them; every transaction that makes a grant compares it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leasehold._backends.etcd import rpc, transactions
from leasehold._backends.etcd.rpc import KeyValue, Sort
from leasehold.errors import BackendRejected, BackendUnavailable
from leasehold.values import MAX_FENCE

if TYPE_CHECKING:
    from leasehold._backends.etcd.connection import Connection
    from leasehold._backends.etcd.keys import Range
    from leasehold._backends.etcd.rpc import RangeResponse

__all__ = ["Fences", "Floor"]

ROUNDS = 5


class Floor(NamedTuple):
    """What is added to a revision, and the revision that wrote it; 0 and 0 where nothing is stored."""

    value: int = 0
    written: int = 0


NO_FLOOR = Floor()


class Fences:
    """The floors that one client has read, and the highest fence that could have been given under each."""

    def __init__(self, connection: Connection, least: int = 0) -> None:
        self._connection = connection
        self._least = least
        self._floors: dict[bytes, Floor] = {}
        self._highest: dict[bytes, int] = {}

    async def floor(self, key: bytes) -> Floor:
        """The floor as it was read last; a transaction compares it."""
        floor = self._floors.get(key)
        if floor is None and self._least:
            await self.raise_above(key, self._least)
            floor = self._floors.get(key)
        return floor or NO_FLOOR

    def highest(self, key: bytes) -> int:
        """The highest fence that could have been given so far: read it before a transaction, `check` after it."""
        return self._highest.get(key, 0)

    def learn(self, key: bytes, response: RangeResponse) -> Floor:
        """Keep the floor that was read just now."""
        floor = _read(response.found[0]) if response.found else NO_FLOOR
        self._floors[key] = floor
        return floor

    def check(self, key: bytes, floor: Floor, revision: int, before: int) -> None:
        """Refuse to go on where fences would be given twice; `before` is `highest` from before the request."""
        highest = floor.value + revision
        if highest < before:
            raise BackendRejected(
                f"etcd has gone back from revision {before - floor.value} to {revision}, as after a restore from a "
                f"backup: fences would be given twice. Run: leasehold fence raise NAME {before} --reason restored",
                backend=self._connection.label,
            )
        if highest > MAX_FENCE:
            raise BackendRejected(
                f"the fence would be higher than {MAX_FENCE}; use another namespace, whose floor is lower",
                backend=self._connection.label,
            )
        self._highest[key] = max(highest, self._highest.get(key, 0))

    async def raise_above(self, key: bytes, fence: int, queue: Range | None = None) -> int:
        """Make every later fence of the namespace higher than this one; returns what they are higher than now.

        `queue` has the claims of one lock: those that wait in it by now have older revisions than any later one, and
        get the floor that is stored when their turn comes.
        """
        for _ in range(ROUNDS):
            seen = await self._connection.range(rpc.read(key))
            floor, revision = self.learn(key, seen), seen.header.revision
            if queue is not None:
                oldest = (await self._connection.range(rpc.range_(*queue, limit=1, sort=Sort.OLDEST))).found
                revision = min([revision, *(kv.created - 1 for kv in oldest)])
            if floor.value + revision >= fence:
                return floor.value + revision
            raised = fence - revision  # revisions only rise, so every later fence is above this one
            stored = KeyValue(key, written=floor.written)
            response = await self._connection.txn(transactions.put_if_unchanged(stored, str(raised).encode()))
            if response.succeeded:
                self._floors[key] = Floor(raised, response.header.revision)
                return fence
        raise BackendUnavailable(
            "other clients raise the fences of this namespace at the same time; try again",
            backend=self._connection.label,
        )


def _read(kv: KeyValue) -> Floor:
    if not kv.value.isdigit():
        raise BackendRejected(
            f"the value of {kv.key!r} was not written by leasehold; keep other programs off these keys, or choose "
            "another root for the locks: etcd://host/ROOT"
        )
    return Floor(int(kv.value), kv.written)
