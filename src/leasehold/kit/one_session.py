"""The one connection of a client whose grants end with its session: used by one call after the other, and watched.

The connection is watched while it is idle: if the server ends it, the store's alarm has every grant renewed at once.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar
from weakref import ReferenceType, ref

from leasehold.errors import BackendError, BackendUnavailable, ClientClosed
from leasehold.kit.pool import BUSY, CLOSE_PATIENCE, LINGER, Pooled
from leasehold.kit.pool_queue import PoolQueue, Slot
from leasehold.kit.worker import spawn_late
from leasehold.values import Grant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from leasehold.kit.pool import Maintenance
    from leasehold.spi import Runtime, Task
    from leasehold.values import Claim

__all__ = ["OneSession", "SessionConnection"]

LOOK_AGAIN = 0.02  # how soon the connection is watched again after a call has used it


class SessionConnection(Pooled, Protocol):
    """A connection that a call may leave with an answer that was not read."""

    def view(self) -> Self:
        """A second object for the same connection and session, to be referred to by one call alone."""

    def is_owed(self) -> bool:
        """Whether the answer to a request has not been read."""

    async def recovers(self, until: float = math.inf) -> bool:
        """Read such an answer; False if the connection has failed. `BackendUnavailable` if it does not come."""


A = TypeVar("A")
C = TypeVar("C", bound=SessionConnection)


class OneSession(Generic[C]):
    """The one connection, used by one call after the other, and kept open while something is held.

    A call that is interrupted leaves its answer behind; the next one reads that first. Only a connection that failed is
    given up, because all grants of the session end with it.
    """

    product = "store"  # for the names of threads and loggers

    def __init__(self, runtime: Runtime, label: str, answer_timeout: float) -> None:
        self._runtime = runtime
        self._label = label
        self._patience = BUSY * answer_timeout
        self._guard = runtime.guard()
        self._queue = PoolQueue(runtime)
        self._wake = runtime.signal()
        self._user: ReferenceType[Slot] | None = None  # of the call that uses it now
        self._connection: C | None = None
        self._used = 0.0
        self._held: dict[str, float] = {}  # until when an owner's grant may need the session
        self._worker: Task | None = None
        self._has_worker = False
        self._alarm: Callable[[], None] | None = None
        self.is_closed: bool = False
        self.maintenance: Maintenance[C] | None = None

    # --- for the store to fill in

    async def _open(self, until: float) -> C:
        """A new connection, whose session is ready for grants."""
        raise NotImplementedError

    async def _comes(self, connection: C, seconds: float) -> bool:
        """Wait until the server sends something, beside a call that may use the connection; False: the time is over."""
        raise NotImplementedError

    def _interrupt(self, connection: C) -> None:
        """End a wait for this connection, from any thread."""
        raise NotImplementedError

    # --- what is held in it

    def on_end(self, alarm: Callable[[], None]) -> None:
        """Call this when the server has ended the session."""
        self._alarm = alarm

    def hold(self, claim: Claim) -> None:
        """A grant was confirmed: the session is needed for one ttl at the least."""
        self._held[claim.owner] = self._runtime.now() + claim.ttl

    def renewed(self, answers: Sequence[A]) -> Sequence[A]:
        """Answers to renewals: what is still granted needs the session for one more ttl."""
        for answer in answers:
            if isinstance(answer, Grant):
                self.hold(answer.claim)
        return answers

    def drop(self, claim: Claim) -> None:
        """It is not needed for this claim any more."""
        self._held.pop(claim.owner, None)

    # --- one call after the other

    async def take(self, until: float = math.inf, *, first: bool = False, extra: bool = False) -> C:  # noqa: ARG002 - there is only one
        """See `Pool`; there is only one."""
        self._require_open()
        slot = self._only_user() if self._queue.is_open_for(first=first) else None
        if slot is None:
            deadline = min(self._runtime.now() + self._patience, until)
            slot = await self._queue.wait_for(self._only_user, deadline, self._require_open, first=first)
        if slot is None:
            label = self._label
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

    def give(self, connection: C) -> None:
        """See `Pool`."""
        self._used = self._runtime.now()
        if self.is_closed:
            self._end()
        self._leave(connection.slot)
        if not self._has_worker:
            self._start_worker()

    def discard(self, connection: C, *, dead: bool) -> None:
        """See `Pool`; what did not fail is kept, and the next call reads the answer that this one left."""
        if dead and connection.is_broken():
            self._end()
        self.give(connection)

    async def close(self) -> None:
        """End the session; calls that run or wait end with `ClientClosed`."""
        self.is_closed = True
        self._wake.set()
        self._queue.call_all()
        connection, slot = self._connection, self._only_user()
        if slot is not None:
            self._end()
            self._leave(slot)
        elif connection is not None:  # the call that uses it fails, and closes it
            self._interrupt(connection)
        if self._worker is not None:
            await self._worker.join(self._runtime.now() + CLOSE_PATIENCE)

    def _require_open(self) -> None:
        if self.is_closed:
            raise ClientClosed(backend=self._label)

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

    async def _recovers(self, connection: C, until: float) -> bool:
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

    async def _begin(self, until: float) -> C:
        self._end()
        self._require_open()
        connection = self._connection = await self._open(until)
        return connection

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
        self._worker = spawn_late(self._runtime, self._work, f"leasehold {self.product} session")

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

    async def _watch(self, connection: C) -> None:
        """Wait for a while, or until the server sends something outside a call: it ends the session."""
        self._wake.clear()
        if not await self._comes(connection, LINGER / 2) or self.is_closed:
            return
        slot = self._only_user() if self._connection is connection else None
        if slot is None:  # the answer to a call that is under way, most likely
            await self._runtime.wait(self._wake, self._runtime.now() + LOOK_AGAIN)
            return
        try:
            ended = not connection.is_owed() and not connection.is_usable()
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
            logging.getLogger(f"leasehold.{self.product}").debug("maintenance failed, and is left for later: %s", error)
        finally:
            self._leave(slot)

    def _end_if_idle(self) -> None:
        if self._needed() or self._runtime.now() < self._used + LINGER:
            return
        slot = self._only_user()
        if slot is not None:
            self._end()
            self._leave(slot)
