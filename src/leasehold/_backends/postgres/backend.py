"""`postgresql://`: locks in rows of a PostgreSQL database, with every capability.

Each verb is one call of a function in the database, one round trip; the functions are in `sql/`. Nothing here depends
on a session, so it works behind a pooler that changes servers from transaction to transaction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold._backends.postgres import statements as sql
from leasehold._backends.postgres.base import BaseBackend
from leasehold._backends.postgres.notifications import Listener, Waiter
from leasehold._backends.postgres.queue import TurnBatch
from leasehold.kit.pauses import pause_from_json, pause_to_json
from leasehold.kit.rules import RECHECKS_MISSED, handed_over_since, place_lifetime
from leasehold.spi import Place
from leasehold.values import Capability, Grant, Reading, Record, Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold._backends.postgres.driver import AnyConnection
    from leasehold._backends.postgres.executor import Executor
    from leasehold._backends.postgres.options import PostgresOptions
    from leasehold._backends.postgres.statements import Statements
    from leasehold.spi import Runtime
    from leasehold.values import Claim, Holder

__all__ = ["RowsBackend"]

SHORTEST_RECHECK = 0.01


@dataclass(frozen=True, slots=True)
class _QueuePlace(Place):
    """A place, with the waiter that its notification is delivered to."""

    waiter: Waiter | None = None


class RowsBackend(BaseBackend):
    """Grants that last until their ttl is over, a queue, and records."""

    capabilities = frozenset(Capability) - {Capability.SESSION}

    def __init__(
        self,
        options: PostgresOptions,
        statements: Statements,
        executor: Executor,
        runtime: Runtime,
        *,
        listen: Callable[[], Awaitable[AnyConnection | None]],
    ) -> None:
        super().__init__(options, statements, executor, runtime)
        self._floor = options.fence_floor
        self._listener = Listener(runtime, executor, statements, listen)
        self._turns = TurnBatch(executor, statements, runtime, options.answer_timeout)

    # --- claims

    async def try_acquire(self, claim: Claim, until: float = math.inf, /) -> Grant | Refusal:
        sent = self._runtime.now()
        rows = await self._execute(self._sql.acquire, sql.claim_values(claim, self._floor), until)
        return self._granted(rows, claim) or self._refusal(sql.Answer(rows, sent), claim)

    async def join(self, claim: Claim, until: float = math.inf, /) -> Grant | Place | Refusal:
        channel = self._listener.channel
        waiter = None if channel is None else self._listener.expect(claim)  # a notification may overtake the answer
        sent = self._runtime.now()
        values = sql.claim_values(claim, self._floor, waits=True, channel=channel)
        rows = await self._execute(self._sql.acquire, values, until)
        grant = self._granted(rows, claim)
        if grant is not None:
            return grant
        answer = sql.Answer(rows, sent)
        if answer.value(0) != b"placed":
            return self._refusal(answer, claim)
        waiter = waiter or self._listener.expect(claim)
        place = self._place(answer, claim, waiter)
        if self._listener.ensure() != channel:  # the row has an outdated channel: have the next turn correct it
            waiter.signal.set()
        return place

    async def turn(self, place: Place, until: float = math.inf, /) -> Grant | Place | Refusal:
        claim = place.claim
        waiter = getattr(place, "waiter", None) or self._listener.expect(claim)
        handover, waiter.handover = waiter.handover, None
        if handover is not None:
            since = self._believed_since(waiter, handover.moment)
            if since is not None:
                return Grant(claim, handover.fence, place_lifetime(claim), since, handover.abandoned, handover.spare)
        answer = await self._turns.query(claim, self._listener.ensure(), until)
        if answer.row is not None:
            grant = self._granted(answer.rows, claim, answer.row, answer.first)
            if grant is not None:
                return grant
        if answer.value(0) != b"placed":
            return self._refusal(answer, claim)
        return self._place(answer, claim, waiter)

    # --- records

    async def read(self, key: str, fence: int = 0) -> Reading:
        values = (sql.key_bytes(key), b"%d" % fence)
        row = await (self._execute(self._sql.read, values) if fence else self._executor.look(self._sql.read, values))
        if row is None:
            return Reading(None, 0, float((await self._execute(self._sql.clock, ())).get_value(0, 0) or 0))
        value, highest, left = row.get_value(0, 0), int(row.get_value(0, 1) or 0), row.get_value(0, 2)
        record = None
        if value is not None and left is not None:
            record = Record(key, bytes.fromhex(value.decode()), highest, float(left))
        return Reading(record, highest, float(row.get_value(0, 3) or 0))

    async def write(self, record: Record) -> bool:
        values = (sql.key_bytes(record.key), record.value, b"%d" % record.fence, sql.number(record.ttl))
        return (await self._execute(self._sql.write, values)).get_value(0, 0) == b"t"

    # --- pauses

    async def pause(self, key: str, by: Holder, seconds: float) -> None:
        await self._execute(self._sql.pause, (sql.key_bytes(key), pause_to_json(by).encode(), sql.number(seconds)))

    async def resume(self, key: str) -> bool:
        return (await self._execute(self._sql.resume, (sql.key_bytes(key),))).get_value(0, 0) == b"t"

    # --- life

    async def close(self) -> None:
        await self._listener.close()
        await self._executor.source.close()

    # --- answers

    def _place(self, answer: sql.Answer, claim: Claim, waiter: Waiter) -> Place:
        waiter.sent, waiter.moment = answer.sent, sql.seconds(answer.value(3))
        waiter.ahead = ahead = int(answer.value(4) or 0)
        recheck, ends = place_lifetime(claim) / RECHECKS_MISSED, sql.seconds(answer.value(5))
        if ahead == 0 and ends is not None:  # the first waiter looks again as soon as a dead holder's time is over
            recheck = min(recheck, max(ends, SHORTEST_RECHECK))
        paused = pause_from_json(answer.value(6), ends)
        holder = sql.holder_from(answer.value(6)) if paused is None else None
        after = None if ends is None or ends <= 0 else ends  # a holder that is dead may not be cleared away yet
        return _QueuePlace(claim, waiter.signal, recheck, ahead, holder, waiter, retry_after=after, paused=paused)

    def _believed_since(self, waiter: Waiter, moment: float) -> float | None:
        """From when on our clock a grant counts that was made at this moment of the database's; None: send a query.

        Our last request was sent at `sent` and answered at `waiter.moment`. As much time as has passed on the
        database's clock since then has passed on ours, at the least since `sent`, or a little less because clocks
        drift. If more seems to have passed there than here, its clock was set; that can hide in a long wait, so a
        notification alone is believed only if our last request was answered not long ago.
        """
        if waiter.moment is None:
            return None
        now, passed = self._runtime.now(), moment - waiter.moment
        since = handed_over_since(waiter.sent, passed)
        if passed < 0 or since > now or now > waiter.sent + place_lifetime(waiter.claim) / 2:
            return None
        return since
