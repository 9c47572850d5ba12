"""`?mode=session`: grants that end with the session of their holder, so that a crash frees them at once.

All requests of a client go over one connection. Its session has an advisory lock under a random number, which is
stored in the rows of its grants: if that lock can be had, the session has ended, and its grants with it. The lock says
*that* a holder lives, not *what* it holds. An advisory lock for each name could be had twice by two threads of one
session, could not be broken, found again or released by another session, and would not show who holds it.

Grants run out with their ttl as well, so a holder that is cut off is succeeded even if the server does not notice.

The connection is watched while it is idle: if the server ends it, every grant is renewed at once, and lost.
"""

from __future__ import annotations

import logging
import math
import secrets
from typing import TYPE_CHECKING
from weakref import ReferenceType, ref

from psycopg import pq

from leasehold.backends.postgres import statements as sql
from leasehold.backends.postgres.base import BaseBackend
from leasehold.backends.postgres.connection import GOOD, Connection, open_connection
from leasehold.backends.postgres.maintenance import start
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable, ClientClosed, OutcomeUnknown
from leasehold.kit.pool import BUSY, GOODBYE, LINGER
from leasehold.kit.pool_queue import PoolQueue, Slot
from leasehold.values import Capability, Grant, Loss, LossReason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from leasehold.backends.postgres.maintenance import Maintenance
    from leasehold.backends.postgres.options import PostgresOptions
    from leasehold.backends.postgres.pool import Executor
    from leasehold.backends.postgres.statements import Statements
    from leasehold.backends.postgres.wire import Wire
    from leasehold.spi import Runtime, Task
    from leasehold.values import Claim, Refusal

__all__ = ["SessionBackend", "SessionSource"]

logger = logging.getLogger("leasehold.postgres")

LOOK_AGAIN = 0.02  # how soon the connection is watched again after a call has used it
ACTIVE = pq.TransactionStatus.ACTIVE
ENDED = Loss(LossReason.SESSION_ENDED, "the session that held it has ended, or the store lost it")


class SessionSource:
    """The one connection, used by one call after the other, and kept open while something is held.

    A call that is interrupted leaves its answer behind; the next one reads that first. Only a connection that failed is
    given up, because all grants of the session end with it.
    """

    def __init__(
        self,
        options: PostgresOptions,
        parameters: Mapping[str, Any],
        wire: Wire,
        runtime: Runtime,
        statements: Statements,
    ) -> None:
        self._options = options
        self._parameters = dict(parameters)
        self._wire = wire
        self._runtime = runtime
        self._sql = statements
        self._guard = runtime.guard()
        self._queue = PoolQueue(runtime)
        self._wake = runtime.signal()
        self._user: ReferenceType[Slot] | None = None  # of the call that uses it now
        self._connection: Connection | None = None
        self._used = 0.0
        self._held: dict[str, float] = {}  # until when an owner's grant may need the session
        self._worker: Task | None = None
        self._has_worker = False
        self._alarm: Callable[[], None] | None = None
        self.is_closed = False
        self.maintenance: Maintenance | None = None

    # --- what is held in it

    def on_end(self, alarm: Callable[[], None]) -> None:
        """Call this when the server has ended the session."""
        self._alarm = alarm

    def hold(self, claim: Claim) -> None:
        """A grant was confirmed: the session is needed for one ttl at the least."""
        self._held[claim.owner] = self._runtime.now() + claim.ttl

    def drop(self, claim: Claim) -> None:
        """It is not needed for this claim any more."""
        self._held.pop(claim.owner, None)

    # --- a `Source`

    async def take(self, until: float = math.inf, *, first: bool = False, extra: bool = False) -> Connection:  # noqa: ARG002 - there is only one
        self._require_open()
        slot = self._only_user() if self._queue.is_open_for(first=first) else None
        if slot is None:
            deadline = min(self._runtime.now() + BUSY * self._options.answer_timeout, until)
            slot = await self._queue.wait_for(self._only_user, deadline, self._require_open, first=first)
        if slot is None:
            label = self._options.label
            raise BackendUnavailable(
                f"the session at {label} was busy for too long; with mode=session one connection serves the whole "
                "client, so use several clients, or leave mode=session out",
                backend=label,
            )
        try:
            connection = self._connection
            if connection is None or not await self._recovers(connection, until):
                connection = await self._begin(until)
            view = connection.view()  # referred to by its call alone: one that is interrupted frees the session
            view.slot = slot
        except BaseException as error:
            self._leave(slot)
            if isinstance(error, BackendError):
                self._require_open()
            raise
        return view

    def give(self, connection: Connection) -> None:
        self._used = self._runtime.now()
        if self.is_closed:
            self._end()
        self._leave(connection.slot)
        if not self._has_worker:
            self._start_worker()

    def discard(self, connection: Connection, *, dead: bool) -> None:
        if dead and connection.is_broken():
            self._end()
        self.give(connection)

    async def close(self) -> None:
        self.is_closed = True
        self._wake.set()
        self._queue.call_all()
        connection, slot = self._connection, self._only_user()
        if slot is not None:
            self._end()
            self._leave(slot)
        elif connection is not None:  # the call that uses it fails, and closes it
            self._wire.interrupt(connection)
        if self._worker is not None:
            await self._worker.join(self._runtime.now() + GOODBYE)

    def _require_open(self) -> None:
        if self.is_closed:
            raise ClientClosed(backend=self._options.label)

    # --- the session

    def _only_user(self) -> Slot | None:
        """The right to use the connection, if no call has it; an earlier call of the same thread was interrupted."""
        slot = Slot(self._runtime.current())
        with self._guard:
            user = None if self._user is None else self._user()
            if user is None or user.user == slot.user:
                self._user = ref(slot)
                return slot
        return None

    def _leave(self, slot: Slot) -> None:
        with self._guard:
            if self._user is not None and self._user() is slot:
                self._user = None
        self._queue.call_one()

    async def _recovers(self, connection: Connection, until: float) -> bool:
        """Whether the session goes on. One that does not answer is given up once nothing can be held in it any more."""
        try:
            return await connection.recovers(until)
        except BackendUnavailable:
            if self._needed() or self._runtime.now() >= until:
                raise
            return False

    def _needed(self) -> bool:
        now = self._runtime.now()
        for owner in [owner for owner, until in list(self._held.items()) if until <= now]:
            self._held.pop(owner, None)
        return bool(self._held)

    async def _begin(self, until: float) -> Connection:
        self._end()
        self._require_open()
        label, timeout = self._options.label, self._options.answer_timeout
        connection = await open_connection(
            self._wire, self._parameters, self._runtime, label, timeout, until=until, is_over=lambda: self.is_closed
        )
        try:
            await self._name(connection, until)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    async def _name(self, connection: Connection, until: float) -> None:
        """Take the advisory lock of the session. Nothing of the caller's is sent before."""
        label, number = self._options.label, b"%d" % (secrets.randbits(63) - 2**62)
        try:
            await connection.greet(self._sql.greet, own=True, until=until)
            if not connection.is_direct:
                raise BackendRejected(
                    f"{label}: a pooler is in between, and mode=session needs a session of its own; use the address of "
                    "the server itself, or leave mode=session out",
                    backend=label,
                )
            answer = await connection.execute(self._sql.begin, (number, number), until)
        except OutcomeUnknown as unanswered:
            raise BackendUnavailable(str(unanswered), backend=label) from None
        if answer.status not in GOOD or answer.get_value(0, 0) != b"t":
            raise BackendUnavailable(f"{label}: the session could not take its advisory lock; try again", backend=label)

    def _end(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # --- the worker

    def _start_worker(self) -> None:
        with self._guard:
            if self._has_worker or self.is_closed:
                return
            self._has_worker = True
        self._worker = start(self._runtime, self._work, "leasehold postgres session")

    async def _work(self) -> None:
        try:
            while (connection := self._connection) is not None and not self.is_closed:
                await self._watch(connection)
                await self._maintain()
                self._end_if_idle()
        except BaseException:  # the event loop is shut down
            self._end()
            raise
        finally:
            self._has_worker = False

    async def _watch(self, connection: Connection) -> None:
        """Wait for a while, or until the server sends something outside a call: it ends the session."""
        self._wake.clear()
        if not await self._wire.watch(connection, LINGER / 2) or self.is_closed:
            return
        slot = self._only_user() if self._connection is connection else None
        if slot is None:  # the answer to a call that is under way, most likely
            await self._runtime.wait(self._wake, self._runtime.now() + LOOK_AGAIN)
            return
        try:
            ended = connection.pgconn.transaction_status != ACTIVE and not connection.is_usable()
            if ended:
                self._end()
        finally:
            self._leave(slot)
        if ended and self._alarm is not None:
            self._alarm()
        elif not ended:
            await self._runtime.wait(self._wake, self._runtime.now() + LOOK_AGAIN)

    async def _maintain(self) -> None:
        """In the session as it is, and only while no call waits for it."""
        connection = self._connection
        if self.maintenance is None or connection is None or not self._queue.is_open_for(first=False):
            return
        slot = self._only_user()
        if slot is None:
            return
        try:
            if self.maintenance.is_due() and await connection.recovers():
                await self.maintenance.run(connection)
        except Exception as error:  # noqa: BLE001 - if the connection has failed, the next call replaces it
            logger.debug("maintenance failed, and is left for later: %s", error)
        finally:
            self._leave(slot)

    def _end_if_idle(self) -> None:
        if self._needed() or self._runtime.now() < self._used + LINGER:
            return
        slot = self._only_user()
        if slot is not None:
            self._end()
            self._leave(slot)


class SessionBackend(BaseBackend):
    """Grants that end with the session."""

    capabilities = frozenset(
        {Capability.EXCLUSIVE, Capability.SHARED, Capability.FENCING, Capability.INSPECT, Capability.SESSION}
    )
    in_session = True
    gone = ENDED

    def __init__(
        self,
        options: PostgresOptions,
        statements: Statements,
        executor: Executor,
        runtime: Runtime,
        source: SessionSource,
    ) -> None:
        super().__init__(options, statements, executor, runtime)
        self._source = source

    def on_alert(self, alert: Callable[[], None]) -> None:
        self._source.on_end(alert)

    async def try_acquire(self, claim: Claim, until: float = math.inf, /) -> Grant | Refusal:
        values = sql.claim_values(claim, self._options.fence_floor, in_session=True)
        sent = self._runtime.now()
        rows = await self._execute(self._sql.acquire, values, until)
        grant = self._granted(rows, claim)
        if grant is None:
            return self._refusal(sql.Answer(rows, sent), claim)
        self._source.hold(claim)
        return Grant(claim, grant.fence, grant.ttl)

    async def renew(self, grants: Sequence[Grant], until: float = math.inf, /) -> Sequence[Grant | Loss]:
        answers = await super().renew(grants, until)
        for answer in answers:
            if isinstance(answer, Grant):
                self._source.hold(answer.claim)
        return answers

    async def release(self, grant: Grant, until: float = math.inf, /) -> bool | Loss:
        freed = await super().release(grant, until)
        self._source.drop(grant.claim)
        return freed

    async def withdraw(self, claim: Claim, until: float = math.inf, /, *, doubt: bool = True) -> None:
        await super().withdraw(claim, until, doubt=doubt)
        self._source.drop(claim)

    async def close(self) -> None:
        """The session ends, and its grants with it: their holders have an event of that already."""
        await self._source.close()
