"""What both modes share: each verb is one call of a function in the database, one round trip.

The functions are in `sql/`. Here claims become parameters, and rows become answers. It knows no queue and no session.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from leasehold._backends.postgres import statements as sql
from leasehold._backends.postgres.inspect import states_from
from leasehold.kit.pauses import pause_from_json
from leasehold.kit.rules import check_kind
from leasehold.values import Grant, Loss, LossReason, Mode, Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._backends.postgres.driver import Rows
    from leasehold._backends.postgres.executor import Executor
    from leasehold._backends.postgres.options import PostgresOptions
    from leasehold._backends.postgres.statements import Answer, Statements
    from leasehold.findings import Finding
    from leasehold.spi import Runtime
    from leasehold.values import Claim, LockState

__all__ = ["BaseBackend"]

FREED, GONE = b"freed", b"gone"  # answers to a release; any other is the reason of a break, as JSON
TAKEN = Loss(LossReason.TAKEN, "the store does not know this grant any more")


class BaseBackend:
    """Renewing, releasing, withdrawing, inspecting; the modes add how a claim is granted."""

    in_session = False  # grants end with the session
    gone = TAKEN  # the loss of a grant that is not there any more

    def __init__(self, options: PostgresOptions, statements: Statements, executor: Executor, runtime: Runtime) -> None:
        self.label = options.label
        self._options = options
        self._sql = statements
        self._executor = executor
        self._execute = executor.execute
        self._runtime = runtime

    async def renew(self, grants: Sequence[Grant], until: float = math.inf, /) -> Sequence[Grant | Loss]:
        if not grants:
            return []
        values = (
            sql.array((sql.key_bytes(grant.claim.key) for grant in grants), binary=True),
            sql.array(grant.claim.owner.encode() for grant in grants),
            sql.array(b"%d" % grant.fence for grant in grants),
            sql.array(sql.number(grant.claim.ttl) for grant in grants),
            b"t" if self.in_session else b"f",
        )
        rows = await self._execute(self._sql.renew, values, until, first=True, extra=True)
        answers: list[Grant | Loss] = [
            Grant(grant.claim, grant.fence, grant.claim.ttl, None, grant.abandoned, grant.spare) for grant in grants
        ]
        for number in range(rows.ntuples):
            place, broken = rows.get_value(number, 0), rows.get_value(number, 1)
            answers[int(place or 0) - 1] = self.gone if broken is None else Loss(LossReason.BROKEN, json.loads(broken))
        return answers

    async def release(self, grant: Grant, until: float = math.inf, /) -> bool | Loss:
        claim = grant.claim
        values = (claim.key.encode(), claim.owner.encode(), b"%d" % grant.fence)
        outcome = (await self._execute(self._sql.release, values, until, first=True)).get_value(0, 0) or b""
        if outcome in (FREED, GONE):
            return outcome == FREED
        return Loss(LossReason.BROKEN, json.loads(outcome))

    async def withdraw(self, claim: Claim, until: float = math.inf, /, *, doubt: bool = True) -> None:
        values = (sql.key_bytes(claim.key), claim.owner.encode(), sql.number(claim.ttl), b"t" if doubt else b"f")
        await self._execute(self._sql.withdraw, values, until, first=True)

    # --- operators

    async def inspect(self, key: str) -> LockState | None:
        wanted = sql.key_bytes(key)
        return next(iter(await self._states(wanted, wanted + b"\x00")), None)

    async def list(self, prefix: str) -> Sequence[LockState]:
        first = sql.key_bytes(prefix)
        return await self._states(first, sql.upper_bound(first))

    async def _states(self, first: bytes, behind: bytes) -> Sequence[LockState]:
        rows = await self._executor.look(self._sql.states, (first, behind))
        return () if rows is None else states_from(rows)

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        values = (sql.key_bytes(key), b"%d" % fence, json.dumps(reason).encode(), b"t" if now else b"f")
        return (await self._execute(self._sql.break_, values)).get_value(0, 0) == b"t"

    async def raise_fence(self, key: str, fence: int) -> int:
        rows = await self._execute(self._sql.raise_fence, (sql.key_bytes(key), b"%d" % fence))
        return int(rows.get_value(0, 0) or 0)

    async def examine(self) -> Sequence[Finding]:
        from leasehold._backends.postgres.doctor import examine  # noqa: PLC0415 - only the doctor needs it

        return await examine(
            self._executor, self._sql.schema, self._runtime, has_listen_url=self._options.listen is not None
        )

    # --- answers

    def _granted(self, rows: Rows, claim: Claim, row: int = 0, first: int = 0) -> Grant | None:
        """The grant in a row whose columns start at `first`, if it is one."""
        verdict = rows.get_value(row, first)
        if verdict == b"granted":
            fence, abandoned = rows.get_value(row, first + 1), rows.get_value(row, first + 2)
            spare = int(rows.get_value(row, first + 7) or 0)
            return Grant(claim, int(fence or 0), claim.ttl, None, abandoned == b"t", spare)
        if verdict == b"conflict":
            mode, capacity = rows.get_value(row, first + 8) or b"", rows.get_value(row, first + 9) or b"0"
            check_kind(claim, Mode(mode.decode()), int(capacity), self.label)
        return None

    def _refusal(self, answer: Answer, claim: Claim) -> Refusal:
        """What is in the way of the claim."""
        ends = sql.seconds(answer.value(5))
        paused = pause_from_json(answer.value(6), ends)
        if paused is not None:
            return Refusal(claim.key, None, paused.expires_in, int(answer.value(4) or 0), None, paused)
        return Refusal(claim.key, sql.holder_from(answer.value(6)), ends, int(answer.value(4) or 0))
