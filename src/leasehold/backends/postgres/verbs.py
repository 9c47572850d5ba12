"""The verbs that both modes share: each is one call of a function in the database, one round trip.

What the functions do is in `sql/`. Here claims become parameters and rows become answers. It knows no queue and no
session.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from leasehold.backends.postgres import statements as sql
from leasehold.kit.rules import check_kind
from leasehold.values import Grant, Holding, LockState, Loss, LossReason, Mode, Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg.pq.abc import PGresult

    from leasehold.backends.postgres.pool import Asking
    from leasehold.backends.postgres.settings import Settings
    from leasehold.backends.postgres.statements import Answer, Statements
    from leasehold.findings import Finding
    from leasehold.spi import Runtime
    from leasehold.values import Claim

__all__ = ["Verbs"]

FREED, GONE = b"freed", b"gone"  # what a release answers; anything else is the reason of a break, as JSON
TAKEN = Loss(LossReason.TAKEN, "the store does not know this grant any more")


class Verbs:
    """A client's way to the tables."""

    in_session = False  # grants live in a session
    gone = TAKEN  # how a grant is lost that is not there any more

    def __init__(self, settings: Settings, statements: Statements, asking: Asking, runtime: Runtime) -> None:
        self.label = settings.label
        self._settings = settings
        self._sql = statements
        self._asking = asking
        self._ask = asking.ask
        self._runtime = runtime

    async def renew(self, grants: Sequence[Grant], until: float = math.inf, /) -> Sequence[Grant | Loss]:
        """See `Backend`."""
        if not grants:
            return []
        values = (
            sql.array((sql.key_bytes(grant.claim.key) for grant in grants), binary=True),
            sql.array(grant.claim.owner.encode() for grant in grants),
            sql.array(b"%d" % grant.fence for grant in grants),
            sql.array(sql.number(grant.claim.ttl) for grant in grants),
            b"t" if self.in_session else b"f",
        )
        rows = await self._ask(self._sql.renew, values, until, urgent=True)
        answers: list[Grant | Loss] = [
            Grant(grant.claim, grant.fence, grant.claim.ttl, None, grant.abandoned) for grant in grants
        ]
        for number in range(rows.ntuples):
            place, broken = rows.get_value(number, 0), rows.get_value(number, 1)
            answers[int(place or 0) - 1] = self.gone if broken is None else Loss(LossReason.BROKEN, json.loads(broken))
        return answers

    async def release(self, grant: Grant, until: float = math.inf, /) -> bool | Loss:
        """See `Backend`."""
        claim = grant.claim
        values = (claim.key.encode(), claim.owner.encode(), b"%d" % grant.fence)
        outcome = (await self._ask(self._sql.release, values, until)).get_value(0, 0) or b""
        if outcome in (FREED, GONE):
            return outcome == FREED
        return Loss(LossReason.BROKEN, json.loads(outcome))

    async def withdraw(self, claim: Claim, until: float = math.inf, /, *, doubt: bool = True) -> None:
        """See `Backend`."""
        values = (sql.key_bytes(claim.key), claim.owner.encode(), sql.number(claim.ttl), b"t" if doubt else b"f")
        await self._ask(self._sql.withdraw, values, until)

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

    async def examine(self) -> Sequence[Finding]:
        """See `Examining`."""
        from leasehold.backends.postgres.examining import examine  # noqa: PLC0415 - only the doctor needs it

        return await examine(self._asking, self._sql.schema, self._runtime, hears=self._settings.listen is not None)

    # --- answers

    def granted(self, answer: Answer, claim: Claim) -> Grant | None:
        """The grant, if it is one."""
        verdict = answer.value(0)
        if verdict == b"granted":
            return Grant(claim, int(answer.value(1) or 0), claim.ttl, None, answer.value(2) == b"t")
        if verdict == b"conflict":
            mode, capacity = answer.value(7) or b"", answer.value(8) or b"0"
            check_kind(claim, Mode(mode.decode()), int(capacity), self.label)
        return None

    def refusal(self, answer: Answer, claim: Claim) -> Refusal:
        """What stands in the way."""
        ends = sql.seconds(answer.value(5))
        return Refusal(claim.key, sql.holder_from(answer.value(6)), ends, int(answer.value(4) or 0))


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
