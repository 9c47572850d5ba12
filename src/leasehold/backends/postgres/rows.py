"""`postgresql://`: locks in rows of a PostgreSQL database, with every capability.

Each verb is one call of a function in the database, one round trip; what the functions do is in `sql/`. Here claims
become parameters and rows become grants. Nothing here depends on a session: it works behind a pooler that changes
servers from transaction to transaction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold.backends.postgres import statements as sql
from leasehold.backends.postgres.bells import Bells, Standing
from leasehold.backends.postgres.turns import Turns
from leasehold.backends.postgres.verbs import Verbs
from leasehold.kit.rules import RECHECKS_MISSED, handed_over_since, place_lifetime
from leasehold.spi import Place
from leasehold.values import Capability, Grant, Reading, Record, Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold.backends.postgres.line import Line, Wire
    from leasehold.backends.postgres.pool import Asking
    from leasehold.backends.postgres.settings import Settings
    from leasehold.backends.postgres.statements import Statements
    from leasehold.spi import Runtime
    from leasehold.values import Claim

__all__ = ["RowsBackend"]

SHORTEST_RECHECK = 0.01


@dataclass(frozen=True, slots=True)
class _Seat(Place):
    """A place, and what is known of it here."""

    standing: Standing | None = None


class RowsBackend(Verbs):
    """Grants that live until their ttl, a queue, and records."""

    capabilities = frozenset(Capability) - {Capability.SESSION}

    def __init__(
        self,
        settings: Settings,
        statements: Statements,
        asking: Asking,
        runtime: Runtime,
        *,
        wire: Wire,
        listen: Callable[[], Awaitable[Line | None]],
    ) -> None:
        super().__init__(settings, statements, asking, runtime)
        self._floor = settings.fence_floor
        self._bells = Bells(runtime, wire, asking, statements, listen)
        self._turns = Turns(asking, statements, runtime, settings.answer_timeout)

    # --- claims

    async def try_acquire(self, claim: Claim, until: float = math.inf, /) -> Grant | Refusal:
        """See `Backend`."""
        sent = self._runtime.now()
        answer = sql.Answer(await self._ask(self._sql.acquire, sql.claim_values(claim, self._floor), until), sent)
        return self.granted(answer, claim) or self.refusal(answer, claim)

    async def join(self, claim: Claim, until: float = math.inf, /) -> Grant | Place | Refusal:
        """See `Queueing`."""
        bell = self._bells.channel
        standing = None if bell is None else self._bells.expect(claim)  # a message may be quicker than the answer
        sent = self._runtime.now()
        values = sql.claim_values(claim, self._floor, waits=True, bell=bell)
        answer = sql.Answer(await self._ask(self._sql.acquire, values, until), sent)
        grant = self.granted(answer, claim)
        if grant is not None:
            return grant
        if answer.value(0) != b"placed":
            return self.refusal(answer, claim)
        standing = standing or self._bells.expect(claim)
        seat = self._seat(answer, claim, standing)
        if self._bells.ensure() != bell:  # otherwise it wakes us when there is a bell to be called by
            standing.signal.set()
        return seat

    async def turn(self, place: Place, until: float = math.inf, /) -> Grant | Place | Refusal:
        """See `Queueing`."""
        claim = place.claim
        standing = getattr(place, "standing", None) or self._bells.expect(claim)
        handed, standing.handed = standing.handed, None
        if handed is not None:
            since = self._believed_since(standing, handed.moment)
            if since is not None:
                return Grant(claim, handed.fence, place_lifetime(claim), since, handed.abandoned)
        answer = await self._turns.ask(claim, self._bells.ensure(), until)
        grant = self.granted(answer, claim)
        if grant is not None:
            return grant
        if answer.value(0) != b"placed":
            return self.refusal(answer, claim)
        return self._seat(answer, claim, standing)

    # --- records

    async def read(self, key: str, fence: int = 0) -> Reading:
        """See `Recording`."""
        row = await self._ask(self._sql.read, (sql.key_bytes(key), b"%d" % fence))
        value, highest, left = row.get_value(0, 0), int(row.get_value(0, 1) or 0), row.get_value(0, 2)
        record = None
        if value is not None and left is not None:
            record = Record(key, bytes.fromhex(value.decode()), highest, float(left))
        return Reading(record, highest, float(row.get_value(0, 3) or 0))

    async def write(self, record: Record) -> bool:
        """See `Recording`."""
        values = (sql.key_bytes(record.key), record.value, b"%d" % record.fence, sql.number(record.ttl))
        return (await self._ask(self._sql.write, values)).get_value(0, 0) == b"t"

    # --- life

    async def close(self) -> None:
        """See `Backend`."""
        await self._bells.close()
        await self._asking.source.close()

    # --- answers

    def _seat(self, answer: sql.Answer, claim: Claim, standing: Standing) -> Place:
        standing.sent, standing.moment = answer.sent, sql.seconds(answer.value(3))
        standing.ahead = ahead = int(answer.value(4) or 0)
        recheck, ends = place_lifetime(claim) / RECHECKS_MISSED, sql.seconds(answer.value(5))
        if ahead == 0 and ends is not None:  # the first in line is there when a dead holder's time is over
            recheck = min(recheck, max(ends, SHORTEST_RECHECK))
        return _Seat(claim, standing.signal, recheck, ahead, sql.holder_from(answer.value(6)), standing)

    def _believed_since(self, standing: Standing, moment: float) -> float | None:
        """From when a grant counts that was handed over at this moment of the database's clock; None: better ask.

        Our last request was sent at `sent` and answered at `standing.moment`. As much time as has passed on the
        database's clock since then has passed on ours, at the least since `sent`, or a little less because clocks
        drift. If it looks as if more had passed there than here, its clock was set; that can hide in a long wait, so
        a grant is taken unasked only if our last request was answered not long ago.
        """
        if standing.moment is None:
            return None
        now, passed = self._runtime.now(), moment - standing.moment
        since = handed_over_since(standing.sent, passed)
        if passed < 0 or since > now or now > standing.sent + place_lifetime(standing.claim) / 2:
            return None
        return since
