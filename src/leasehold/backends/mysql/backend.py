"""`mysql://`, `mariadb://`: locks in rows of a MySQL or MariaDB database.

Nothing here depends on a session, so that a connection that dies costs a holder nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold.backends.mysql import statements as sql
from leasehold.backends.mysql.base import BaseBackend
from leasehold.kit import pauses, rules
from leasehold.kit.rules import Queued, place_lifetime
from leasehold.spi import Place
from leasehold.values import Capability, Reading, Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.backends.mysql.rows import NameRows
    from leasehold.spi import Signal
    from leasehold.values import Claim, Grant, Holder, Refusal

__all__ = ["RowsBackend"]

RECHECK_WITHOUT_LISTENER = 0.5  # two queries a second


@dataclass(frozen=True, slots=True)
class _QueuePlace(Place):
    """A place, with the number of its row."""

    number: int = 0


class RowsBackend(BaseBackend):
    """Grants that last until their ttl is over, a queue, and records."""

    capabilities = frozenset(Capability) - {Capability.SESSION, Capability.PUSH}

    # --- claims that wait

    async def join(self, claim: Claim, until: float = math.inf, /) -> Grant | Place | Refusal:
        grant = await self._grant_plain(claim, until)
        if grant is not None:
            return grant
        return await self._queue(rules.join, claim, self._runtime.signal(), until)

    async def turn(self, place: Place, until: float = math.inf, /) -> Grant | Place | Refusal:
        return await self._queue(rules.turn, place.claim, place.signal, until)

    async def _queue(
        self,
        verb: Callable[[NameRows, Claim, bytes | None], Grant | Queued | Refusal],
        claim: Claim,
        signal: Signal,
        until: float,
    ) -> Grant | Place | Refusal:
        answer = await self._visit(claim.key, until, lambda rows: verb(rows, claim, None))
        if not isinstance(answer, Queued):
            return answer
        recheck = min(answer.early_recheck, RECHECK_WITHOUT_LISTENER)
        number = answer.row.number
        return _QueuePlace(claim, signal, recheck, answer.ahead, answer.holder, number, paused=answer.paused)

    # --- records

    async def read(self, key: str, fence: int = 0) -> Reading:
        self._check_length(key)
        results = await self._execute(sql.read_record(key.encode(), fence))
        value, highest, expires, now = results[-1].rows[0]
        left = (int(expires or 0) - int(now or 0)) / sql.MICRO
        record = Record(key, value or b"", int(highest or 0), left) if left > 0 else None
        return Reading(record, int(highest or 0), sql.seconds(now))

    async def write(self, record: Record) -> bool:
        self._check_length(record.key)
        (result,) = await self._execute(sql.write_record(record))
        return result.affected > 0

    # --- pauses

    async def pause(self, key: str, by: Holder, seconds: float) -> None:
        await self._visit(key, math.inf, lambda rows: pauses.pause(rows, by, seconds))

    async def resume(self, key: str) -> bool:
        return await self._visit(key, math.inf, pauses.resume)

    # --- life

    async def close(self) -> None:
        await self._executor.source.close()


_ = place_lifetime
