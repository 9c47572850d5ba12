"""Fences: the floor of a namespace plus the revision that created the claim. It knows what may not go back.

Revisions rise with every change of the whole cluster, so a later claim has a higher one, and nothing has to be kept for
a name. Two things can bring them down: a cluster restored from an old snapshot, and a move from another store. The
floor, stored once for each namespace, lifts them; every transaction that makes a grant compares it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leasehold.backends.etcd import messages
from leasehold.backends.etcd.messages import Sort
from leasehold.errors import BackendRejected, BackendUnavailable
from leasehold.values import MAX_FENCE

if TYPE_CHECKING:
    from leasehold.backends.etcd.answers import KeyValue, RangeAnswer
    from leasehold.backends.etcd.connection import Connection

__all__ = ["Floor", "Floors"]

ROUNDS = 5


class Floor(NamedTuple):
    """What is added to a revision, and the revision that wrote it; 0 and 0 where nothing is stored."""

    value: int = 0
    written: int = 0


class Floors:
    """The floors that one client has seen."""

    def __init__(self, connection: Connection, least: int = 0) -> None:
        self._connection = connection
        self._least = least
        self._known: dict[bytes, Floor] = {}
        self._levels: dict[bytes, int] = {}  # the highest fence that could have been given so far

    async def get(self, key: bytes) -> Floor:
        """The floor as it was seen last; it is compared in the transaction."""
        floor = self._known.get(key)
        if floor is None and self._least:
            await self.lift(key, self._least)
        return self._known.get(key, Floor())

    def level(self, key: bytes) -> int:
        """Ask before a transaction, and `check` with it after."""
        return self._levels.get(key, 0)

    def learn(self, key: bytes, answer: RangeAnswer) -> Floor:
        """The floor as it was read just now."""
        floor = _read(answer.found[0]) if answer.found else Floor()
        self._known[key] = floor
        return floor

    def check(self, key: bytes, floor: Floor, revision: int, before: int) -> None:
        """Refuse to go on where fences would come twice. `before` is the level from before the request was sent."""
        level = floor.value + revision
        if level < before:
            raise BackendRejected(
                f"etcd has gone back from revision {before - floor.value} to {revision}, as after a restore from a "
                f"backup: fences would be given twice. Run: leasehold fence raise NAME {before} --reason restored",
                backend=self._connection.label,
            )
        if level > MAX_FENCE:
            raise BackendRejected(f"the fence would be higher than {MAX_FENCE}", backend=self._connection.label)
        self._levels[key] = max(level, self._levels.get(key, 0))

    async def lift(self, key: bytes, fence: int, line: tuple[bytes, bytes] | None = None) -> int:
        """Make every later fence of the namespace higher than this one; what they are higher than now.

        `line` is where claims of one lock stand: those that wait there by now have older revisions than any later one,
        and get the floor that is stored when their turn comes.
        """
        for _ in range(ROUNDS):
            seen = await self._connection.range(messages.range_(key))
            floor, revision = self.learn(key, seen), seen.header.revision
            if line is not None:
                oldest = (await self._connection.range(messages.range_(*line, limit=1, sort=Sort.OLDEST))).found
                revision = min([revision, *(kept.created - 1 for kept in oldest)])
            if floor.value + revision >= fence:
                return floor.value + revision
            lifted = fence - revision  # revisions only rise, so every later fence is above this one
            unchanged = messages.condition(messages.written_at(key, floor.written))
            put = messages.then(messages.op_put(messages.put(key, str(lifted).encode())))
            answer = await self._connection.txn(unchanged + put)
            if answer.succeeded:
                self._known[key] = Floor(lifted, answer.header.revision)
                return fence
        raise BackendUnavailable("others raise the same fence all the time; try again", backend=self._connection.label)


def _read(kept: KeyValue) -> Floor:
    if not kept.value.isdigit():
        raise BackendRejected(f"{kept.key!r} has a value that is not ours; somebody else uses these keys")
    return Floor(int(kept.value), kept.written)
