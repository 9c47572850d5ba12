"""`mysql://`, `mariadb://`: locks in rows of a MySQL or MariaDB database.

Nothing here depends on a session, so that a connection that dies costs a holder nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from leasehold._backends.mysql import queue
from leasehold._backends.mysql import statements as sql
from leasehold._backends.mysql.base import BaseBackend
from leasehold._backends.mysql.notifications import Listener, Waiter
from leasehold._backends.mysql.queue import HandOver, PlaceRow
from leasehold._backends.mysql.rows import NameRows
from leasehold.kit import pauses, rules
from leasehold.kit.rules import Queued, place_lifetime
from leasehold.spi import Place
from leasehold.values import Capability, Grant, Mode, Reading, Record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from leasehold._backends.mysql.connection import Connection
    from leasehold._backends.mysql.options import MysqlOptions
    from leasehold._backends.mysql.pool import Executor
    from leasehold.kit.rows import Row
    from leasehold.spi import Runtime
    from leasehold.values import Claim, Holder, Loss, Refusal

__all__ = ["RowsBackend"]

RECHECK_WITHOUT_LISTENER = 0.5  # two queries a second


@dataclass(frozen=True, slots=True)
class _QueuePlace(Place):
    """A place, with the waiter that is woken."""

    waiter: Waiter | None = None


class RowsBackend(BaseBackend):
    """Grants that last until their ttl is over, a queue, and records."""

    capabilities = frozenset(Capability) - {Capability.SESSION}

    def __init__(
        self,
        options: MysqlOptions,
        executor: Executor,
        runtime: Runtime,
        *,
        listen: Callable[[], Awaitable[Connection]],
    ) -> None:
        super().__init__(options, executor, runtime)
        self._listener = Listener(runtime, executor, listen)

    # --- claims that wait

    async def join(self, claim: Claim, until: float = math.inf, /) -> Grant | Place | Refusal:
        grant = await self._grant_plain(claim, until)
        if grant is not None:
            return grant
        waiter, name = self._listener.expect(claim), self._listener.name  # it may be woken before the answer comes
        answer = await self._joined(claim, name, until)
        if not isinstance(answer, Queued):
            return answer
        place = self._place(answer, waiter, name)
        if self._listener.ensure() != name:  # the row has an outdated name: have the next turn correct it
            waiter.signal.set()
        return place

    async def _joined(self, claim: Claim, name: bytes | None, until: float) -> Grant | Queued | Refusal:
        if claim.mode is Mode.EXCLUSIVE and claim.key in self._crowded:
            results = await self._execute(queue.join_queue(claim, name), until)
            for values in results[-1].rows:
                if queued := PlaceRow.from_values(claim, values).queued():
                    return queued
        return await self._visit(claim.key, until, lambda rows: rules.join(rows, claim, name))

    async def turn(self, place: Place, until: float = math.inf, /) -> Grant | Place | Refusal:
        claim = place.claim
        waiter = getattr(place, "waiter", None) or self._listener.expect(claim)
        name = self._listener.ensure()
        answer = None
        if waiter.listener == name:
            answer = await self._looked(claim, waiter, name, until)
        if answer is None:  # also for a new name: a new version, so that a release under way reads the name as well
            answer = await self._visit(claim.key, until, partial(rules.turn, claim=claim, listener=name))
        if isinstance(answer, Queued):
            return self._place(answer, waiter, name)
        self._listener.forget(waiter)
        return answer

    async def _looked(
        self, claim: Claim, waiter: Waiter, name: bytes | None, until: float
    ) -> Grant | Queued | Refusal | None:
        """See in one round trip how things are, and keep the place alive; None: the rules decide."""
        key, is_light = claim.key.encode(), claim.mode is Mode.EXCLUSIVE
        keep = sql.keep_place(key, waiter.number, claim.owner.encode(), place_lifetime(claim), name)
        look = queue.read_place(claim, waiter.number) if is_light else sql.read_name(key)
        results = await self._execute(b"%b;%b" % (keep, look), until)
        if is_light:
            for values in results[-1].rows:
                row = PlaceRow.from_values(claim, values)
                return row.grant() or row.queued()
            return None
        rows = NameRows(claim.key, self.label, results[-1].rows, self._first_fence)
        answer = self._decided(rows, partial(rules.turn, claim=claim, listener=name))
        return answer if not isinstance(answer, Grant) or await self._is_written(rows, until) else None

    async def release(self, grant: Grant, until: float = math.inf, /) -> bool | Loss:
        if grant.claim.mode is Mode.EXCLUSIVE and not grant.claim.min_hold:
            if grant.claim.key not in self._crowded and await self._is_released_plain(grant, until):
                return True
            if await self._is_handed_over(grant, until):
                return True
        return await self._release_by_rules(grant, until)

    async def _is_handed_over(self, grant: Grant, until: float) -> bool:
        """Free it and grant to the next waiter, in one query; False if the rules have to decide."""
        done = HandOver.from_results(await self._execute(queue.hand_over(grant, self._first_fence), until, first=True))
        if done.listener is not None:
            self._listener.wake((done.listener,))
        return done.is_done

    def _place(self, queued: Queued, waiter: Waiter, listener: bytes | None) -> Place:
        waiter.number, waiter.listener, recheck = queued.row.number, listener, queued.early_recheck
        if self._listener.name is None:
            recheck = min(recheck, RECHECK_WITHOUT_LISTENER)
        claim, after, paused = waiter.claim, queued.retry_after, queued.paused
        return _QueuePlace(
            claim, waiter.signal, recheck, queued.ahead, queued.holder, waiter, retry_after=after, paused=paused
        )

    def _notify(self, waiters: Sequence[Row]) -> None:
        self._listener.wake({waiter.listener for waiter in waiters})

    # --- records

    async def read(self, key: str, fence: int = 0) -> Reading:
        self._check_length(key)
        query = sql.read_record(key.encode(), fence)
        results = await (self._execute(query) if fence else self._executor.look(query))
        if not results:
            (clock,) = await self._executor.look(b"SELECT " + sql.NOW)
            return Reading(None, 0, sql.seconds(clock.rows[0][0]))
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
        await self._listener.close()
        await self._executor.source.close()
