"""`postgresql://`: locks in rows of a PostgreSQL database, with every capability.

Each verb is one call of a function in the database, one round trip; what the functions do is in `sql/`. Here claims
become parameters and rows become grants. Nothing here depends on a session: it works behind a pooler that changes
servers from transaction to transaction.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold.backends.postgres import statements as sql
from leasehold.backends.postgres.bells import Bells, Standing
from leasehold.backends.rules import RECHECKS_MISSED, check_kind, place_lifetime
from leasehold.spi import Place
from leasehold.values import Capability, Grant, Holding, LockState, Loss, LossReason, Mode, Reading, Record, Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from psycopg.pq.abc import PGresult

    from leasehold.backends.postgres.line import Line, Wire
    from leasehold.backends.postgres.pool import Asking
    from leasehold.backends.postgres.settings import Settings
    from leasehold.backends.postgres.statements import Statements
    from leasehold.findings import Finding
    from leasehold.spi import Runtime
    from leasehold.values import Claim

__all__ = ["RowsBackend"]

SHORTEST_RECHECK = 0.01
TAKEN = Loss(LossReason.TAKEN, "the store does not know this grant any more")


@dataclass(frozen=True, slots=True)
class _Seat(Place):
    """A place, and what is known of it here."""

    standing: Standing | None = None


class RowsBackend:
    """A client's way to the rows."""

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
        self.label = settings.label
        self._floor = settings.fence_floor
        self._hears = settings.listen is not None
        self._sql = statements
        self._asking = asking
        self._ask = asking.ask
        self._runtime = runtime
        self._bells = Bells(runtime, wire, asking, statements, listen)

    # --- claims

    async def try_acquire(self, claim: Claim) -> Grant | Refusal:
        """See `Backend`."""
        row = await self._ask(self._sql.acquire, sql.claim_values(claim, self._floor, waits=False, bell=None))
        answer = self._granted(row, claim)
        return answer if answer is not None else self._refusal(row, claim)

    async def join(self, claim: Claim) -> Grant | Place | Refusal:
        """See `Queueing`."""
        bell = self._bells.channel
        standing = None if bell is None else self._bells.expect(claim)  # a message may be quicker than the answer
        sent = self._runtime.now()
        row = await self._ask(self._sql.acquire, sql.claim_values(claim, self._floor, waits=True, bell=bell))
        answer = self._granted(row, claim)
        if answer is not None:
            return answer
        if row.get_value(0, 0) == b"refused":
            return self._refusal(row, claim)
        seat = self._seat(row, claim, standing or self._bells.expect(claim), sent)
        self._bells.ensure()  # which wakes us when there is a bell to be called by
        return seat

    async def turn(self, place: Place) -> Grant | Place | Refusal:
        """See `Queueing`."""
        claim = place.claim
        standing = getattr(place, "standing", None) or self._bells.expect(claim)
        handed, standing.handed = standing.handed, None
        if handed is not None:
            since = self._believed_since(standing, handed.moment)
            if since is not None:
                return Grant(claim, handed.fence, place_lifetime(claim), since, handed.abandoned)
        bell = self._bells.ensure()
        sent = self._runtime.now()
        row = await self._ask(self._sql.turn, (sql.key_bytes(claim.key), claim.owner.encode(), bell))
        answer = self._granted(row, claim)
        if answer is not None:
            return answer
        if row.get_value(0, 0) == b"refused":
            return self._refusal(row, claim)
        return self._seat(row, claim, standing, sent)

    async def renew(self, grants: Sequence[Grant]) -> Sequence[Grant | Loss]:
        """See `Backend`."""
        if not grants:
            return []
        values = (
            sql.array((sql.key_bytes(grant.claim.key) for grant in grants), binary=True),
            sql.array(grant.claim.owner.encode() for grant in grants),
            sql.array(b"%d" % grant.fence for grant in grants),
            sql.array(sql.number(grant.claim.ttl) for grant in grants),
        )
        rows = await self._ask(self._sql.renew, values, urgent=True)
        answers: list[Grant | Loss] = [
            Grant(grant.claim, grant.fence, grant.claim.ttl, None, grant.abandoned) for grant in grants
        ]
        for number in range(rows.ntuples):
            place, broken = rows.get_value(number, 0), rows.get_value(number, 1)
            answers[int(place or 0) - 1] = TAKEN if broken is None else Loss(LossReason.BROKEN, json.loads(broken))
        return answers

    async def release(self, grant: Grant) -> bool:
        """See `Backend`."""
        claim = grant.claim
        values = (claim.key.encode(), claim.owner.encode(), b"%d" % grant.fence)
        return (await self._ask(self._sql.release, values)).get_value(0, 0) == b"t"

    async def withdraw(self, claim: Claim) -> None:
        """See `Backend`."""
        await self._ask(self._sql.withdraw, (sql.key_bytes(claim.key), claim.owner.encode(), sql.number(claim.ttl)))

    # --- operators

    async def inspect(self, key: str) -> LockState | None:
        """See `Inspecting`."""
        wanted = sql.key_bytes(key)
        rows = await self._ask(self._sql.states, (wanted, wanted + b"\x00"))
        return next(iter(_states(rows)), None)

    async def list(self, prefix: str) -> Sequence[LockState]:
        """See `Inspecting`."""
        first = sql.key_bytes(prefix)
        return _states(await self._ask(self._sql.states, (first, sql.upper_bound(first))))

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        """See `Inspecting`."""
        values = (sql.key_bytes(key), b"%d" % fence, json.dumps(reason).encode(), b"t" if now else b"f")
        return (await self._ask(self._sql.break_, values)).get_value(0, 0) == b"t"

    async def raise_fence(self, key: str, fence: int) -> int:
        """See `Inspecting`."""
        rows = await self._ask(self._sql.raise_fence, (sql.key_bytes(key), b"%d" % fence))
        return int(rows.get_value(0, 0) or 0)

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

    async def examine(self) -> Sequence[Finding]:
        """See `Examining`."""
        from leasehold.backends.postgres.examining import examine  # noqa: PLC0415 - only the doctor needs it

        return await examine(self._asking, self._sql.schema, self._runtime, hears=self._hears)

    async def close(self) -> None:
        """See `Backend`."""
        await self._bells.close()
        await self._asking.source.close()

    # --- answers

    def _granted(self, row: PGresult, claim: Claim) -> Grant | None:
        verdict = row.get_value(0, 0)
        if verdict == b"granted":
            return Grant(claim, int(row.get_value(0, 1) or 0), claim.ttl, None, row.get_value(0, 2) == b"t")
        if verdict == b"conflict":
            mode, capacity = row.get_value(0, 7) or b"", row.get_value(0, 8) or b"0"
            check_kind(claim, Mode(mode.decode()), int(capacity), self.label)
        return None

    def _refusal(self, row: PGresult, claim: Claim) -> Refusal:
        ends = _seconds(row.get_value(0, 5))
        return Refusal(claim.key, sql.holder_from(row.get_value(0, 6)), ends, int(row.get_value(0, 4) or 0))

    def _seat(self, row: PGresult, claim: Claim, standing: Standing, sent: float) -> Place:
        standing.sent, standing.moment = sent, _seconds(row.get_value(0, 3))
        standing.ahead = ahead = int(row.get_value(0, 4) or 0)
        recheck = place_lifetime(claim) / RECHECKS_MISSED
        ends = _seconds(row.get_value(0, 5))
        if ahead == 0 and ends is not None:  # the first in line is there when a dead holder's time is over
            recheck = min(recheck, max(ends, SHORTEST_RECHECK))
        return _Seat(claim, standing.signal, recheck, ahead, sql.holder_from(row.get_value(0, 6)), standing)

    def _believed_since(self, standing: Standing, moment: float) -> float | None:
        """From when a grant counts that was handed over at this moment of the database's clock; None: better ask.

        Our last request was sent at `sent` and answered at `standing.moment`. As much time as has passed on the
        database's clock since then has passed on ours, at the least since `sent`. If it looks as if more had passed
        there than here, its clock was set; if half of the short life of such a grant is over, it is too late to take
        it unasked.
        """
        if standing.moment is None:
            return None
        now, passed = self._runtime.now(), moment - standing.moment
        since = standing.sent + passed
        if passed < 0 or since > now or now > since + place_lifetime(standing.claim) / 2:
            return None
        return since


def _states(rows: PGresult) -> Sequence[LockState]:
    """The states of the keys that are listed in order, each with its holders first."""
    states: list[LockState] = []
    for number in range(rows.ntuples):
        values = [rows.get_value(number, column) for column in range(9)]
        name = bytes.fromhex((values[0] or b"").decode()).decode()
        if not states or states[-1].name != name:
            states.append(LockState(name, Mode((values[2] or b"").decode()), int(values[3] or 0), (), ()))
        states[-1] = _with_row(states[-1], values)
    return states


def _with_row(state: LockState, values: Sequence[bytes | None]) -> LockState:
    holder = sql.holder_from(values[4])
    assert holder is not None  # noqa: S101 - the column is never null
    if values[1] == b"3":
        return LockState(state.name, state.mode, state.capacity, state.holdings, (*state.waiting, holder))
    held_for, expires_in = float(values[6] or 0), float(values[7] or 0)
    broken = None if values[8] is None else str(json.loads(values[8]))
    holding = Holding(holder, int(values[5] or 0), held_for, expires_in, broken, cooling=values[1] == b"2")
    return LockState(state.name, state.mode, state.capacity, (*state.holdings, holding), state.waiting)


def _seconds(text: bytes | None) -> float | None:
    return None if text is None else float(text)
