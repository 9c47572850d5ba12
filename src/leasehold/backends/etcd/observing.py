"""What operators ask: who holds, who waits; and breaking a lock. It decides nothing for a claim."""

from __future__ import annotations

import time
from itertools import groupby
from typing import TYPE_CHECKING

from leasehold.backends.etcd import messages
from leasehold.backends.etcd.messages import Sort
from leasehold.backends.etcd.seat import read_seat
from leasehold.values import Holding, LockState, Mode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.backends.etcd.answers import KeyValue
    from leasehold.backends.etcd.layout import Range, Spot
    from leasehold.backends.etcd.seat import Seat
    from leasehold.backends.etcd.toolbox import Toolbox

__all__ = ["Observer"]

PAGE = 2_000
VERDICT_KEPT = 10  # seconds for which a holder can learn why its key is gone
ROUNDS = 5
Claimant = tuple["Spot", "Seat"]


class Observer:
    """Looks at locks, whoever holds them."""

    def __init__(self, tools: Toolbox) -> None:
        self._connection = tools.connection
        self._layout = tools.layout
        self._sessions = tools.sessions
        self._floors = tools.floors

    async def inspect(self, key: str) -> LockState | None:
        """Who holds and who waits; None when nobody does."""
        found = (await self._connection.range(messages.range_(*self._layout.queue(key), sort=Sort.OLDEST))).found
        claimants = [(self._layout.spot(kept.key), read_seat(kept)) for kept in found]
        return await self._state(key, claimants, {}) if claimants else None

    async def states(self, prefix: str) -> Sequence[LockState]:
        """All locks in use whose key starts like this."""
        found = await self._pages(self._layout.queues(prefix))
        claimants = [(self._layout.spot(kept.key), read_seat(kept)) for kept in found]
        claimants.sort(key=_by_key_and_age)
        times: dict[int, float] = {}
        return [await self._state(key, list(group), times) for key, group in groupby(claimants, _key)]

    async def _pages(self, where: Range) -> list[KeyValue]:
        """Everything in a range, as it was at one revision."""
        start, end = where
        found: list[KeyValue] = []
        revision = 0
        while True:
            page = await self._connection.range(messages.range_(start, end, limit=PAGE, revision=revision))
            found += page.found
            if not page.more:
                return found
            start, revision = page.found[-1].key + b"\x00", page.header.revision

    async def _state(self, key: str, claimants: list[Claimant], times: dict[int, float]) -> LockState:
        holders = admitted(claimants)
        spot = claimants[0][0]
        now = time.time()
        holdings = [
            Holding(
                seat.holder,
                seat.fence,
                max(0.0, now - seat.since),
                await self._time_left(seat.kept.lease, times),
                seat.broken,
                seat.cooling,
            )
            for _, seat in claimants[:holders]
        ]
        waiting = tuple(seat.holder for _, seat in claimants[holders:])
        mode = spot.mode if spot.mode is Mode.PERMIT else claimants[0][0].mode
        return LockState(key, mode, spot.capacity, tuple(holdings), waiting)

    async def _time_left(self, lease: int, times: dict[int, float]) -> float:
        """Asked once for each lease; etcd tells whole seconds, rounded down."""
        if lease not in times:
            left = await self._connection.time_to_live(lease)
            times[lease] = max(0.0, min(left.ttl + 0.5, left.granted))
        return times[lease]

    # --- breaking

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        """End the grant with this fence; unless `now`, its seat stays for the rest of the ttl, on its own lease."""
        for _ in range(ROUNDS):
            seat = await self._holding(key, fence)
            if seat is None:
                return False
            left = (await self._connection.time_to_live(seat.kept.lease)).ttl
            lease = await self._sessions.separate(max(VERDICT_KEPT if now else 1, left + 1))
            answer = await self._connection.txn(self._breaking(key, seat, reason, lease, now=now))
            if answer.succeeded:
                return True
            await self._connection.revoke(lease)
        return False

    def _breaking(self, key: str, seat: Seat, reason: str, lease: int, *, now: bool) -> bytes:
        spot = self._layout.spot(seat.kept.key)
        unchanged = messages.condition(messages.written_at(seat.kept.key, seat.kept.written))
        if not now:
            broken = messages.put(seat.kept.key, seat.with_(broken=reason), lease)
            return unchanged + messages.then(messages.op_put(broken))
        verdict = self._layout.lane(key, spot.mode, spot.capacity).verdict(seat.owner)
        freed = messages.then(messages.op_delete(messages.delete(seat.kept.key)))
        return unchanged + freed + messages.then(messages.op_put(messages.put(verdict, reason.encode(), lease)))

    async def _holding(self, key: str, fence: int) -> Seat | None:
        found = (await self._connection.range(messages.range_(*self._layout.queue(key), sort=Sort.OLDEST))).found
        claimants = [(self._layout.spot(kept.key), read_seat(kept)) for kept in found]
        holders = [seat for _, seat in claimants[: admitted(claimants)]]
        return next((seat for seat in holders if seat.fence == fence and not seat.cooling), None)

    async def raise_fence(self, key: str, fence: int) -> int:
        """Make every later fence of this key, and of its namespace, higher than this."""
        return await self._floors.lift(self._layout.floor(key), fence, self._layout.queue(key))


def admitted(claimants: Sequence[Claimant]) -> int:
    """How many of them hold, oldest first; holders always stand before those who wait."""
    if not claimants:
        return 0
    first = claimants[0][0]
    if first.mode is Mode.EXCLUSIVE:
        return 1
    if first.mode is Mode.PERMIT:
        return min(first.capacity, len(claimants))
    return next(
        (number for number, (spot, _) in enumerate(claimants) if spot.mode is Mode.EXCLUSIVE),
        len(claimants),
    )


def _key(claimant: Claimant) -> str:
    return claimant[0].key


def _by_key_and_age(claimant: Claimant) -> tuple[str, int]:
    return claimant[0].key, claimant[1].kept.created
