"""A few connections of one client, each used for the time of one request. It knows nothing of locks.

An idle connection is closed after a while, so that an idle client holds none. A connection whose call did not come to
its end (a timeout, a cancelled task, an exception out of a signal handler) is closed too: its next answer belongs to
that call. Slots are referred to weakly, so that the slot of a call that was interrupted becomes free by itself.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from typing import TYPE_CHECKING
from weakref import WeakSet, ref

from leasehold.backends.postgres.connection import Connection, open_connection
from leasehold.backends.postgres.maintenance import start
from leasehold.backends.postgres.pool_queue import PoolQueue, Slot
from leasehold.errors import BackendError, BackendUnavailable, ClientClosed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from leasehold.backends.postgres.maintenance import Maintenance
    from leasehold.backends.postgres.options import PostgresOptions
    from leasehold.backends.postgres.statements import Statement
    from leasehold.backends.postgres.wire import Wire
    from leasehold.spi import Runtime, Task

__all__ = ["OwnPool"]

LINGER = 2.0  # how long an idle connection stays open
GOODBYE = 1.0  # how long close() waits for the worker
BUSY = 3  # answer timeouts to wait for a connection: the calls before this one may each take one

logger = logging.getLogger("leasehold.postgres")


class OwnPool:
    """A source that makes its connections itself."""

    def __init__(
        self, options: PostgresOptions, parameters: Mapping[str, Any], wire: Wire, runtime: Runtime, greet: Statement
    ):
        self._options = options
        self._parameters = dict(parameters)
        self._wire = wire
        self._runtime = runtime
        self._greet = greet
        self._idle: deque[Connection] = deque()
        self._new: WeakSet[Connection] = WeakSet()  # connected, and not greeted yet
        self._slots: WeakSet[Slot] = WeakSet()
        self._guard = runtime.guard()
        self._queue = PoolQueue(runtime)
        self._wake = runtime.signal()
        self._has_worker = False
        self._worker: Task | None = None
        self.is_closed = False
        self.maintenance: Maintenance | None = None

    async def take(self, until: float = math.inf, *, first: bool = False, extra: bool = False) -> Connection:
        queue = self._queue
        while True:
            found: Connection | Slot | None = None
            if extra or (not queue.first and (first or not queue.rest)):
                try:
                    found = self._idle.pop()
                except IndexError:
                    found = self._new_slot(extra=extra)
            if found is None:
                deadline = min(self._runtime.now() + BUSY * self._options.answer_timeout, until)
                found = await queue.wait_for(lambda: self._look(extra=extra), deadline, self._require_open, first=first)
            if found is None:
                raise self._too_busy()
            connection = await self._fill(found, until) if isinstance(found, Slot) else found
            if connection.is_usable():
                if self.is_closed:
                    connection.interrupt()
                return connection
            connection.close()

    def _look(self, *, extra: bool) -> Connection | Slot | None:
        """An idle connection, or a slot for a new one."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._new_slot(extra=extra)

    def give(self, connection: Connection) -> None:
        connection.idle_since = self._runtime.now()
        self._idle.append(connection)
        if self.is_closed:
            self._close_idle(None)
        if self._queue.first or self._queue.rest:
            self._queue.call_one()
        if not self._has_worker:
            self._start_worker()

    def discard(self, connection: Connection, *, dead: bool) -> None:
        connection.close()
        connection.slot = None
        if dead:
            self._close_idle(None)
        self._queue.call_one()

    async def dedicated(self) -> Connection:
        """A connection outside the limit, which its user keeps for longer, and closes."""
        return await self._open(self._parameters)

    async def open_by(self, parameters: Mapping[str, Any]) -> Connection:
        """The same to another address."""
        return await self._open(dict(parameters))

    async def close(self) -> None:
        self.is_closed = True
        self._close_idle(None)
        for connection in self._in_use():
            connection.interrupt()
        self._queue.call_all()
        self._wake.set()
        if self._worker is not None:
            await self._worker.join(self._runtime.now() + GOODBYE)

    # --- making connections

    async def _fill(self, slot: Slot, until: float) -> Connection:
        try:
            connection = await self._open(self._parameters, until)
        except BaseException:
            self._slots.discard(slot)  # the error may live on, and what it refers to with it
            raise
        slot.is_used = True
        connection.slot, slot.connection = slot, ref(connection)
        return connection

    def _new_slot(self, *, extra: bool) -> Slot | None:
        slot, limit = Slot(self._runtime.current()), self._options.connections + extra
        for other in list(self._slots):
            if other.user == slot.user and not other.is_used:
                self._slots.discard(other)
        with self._guard:
            if self.is_closed or len(self._slots) < limit:
                self._slots.add(slot)
                return slot
        return None

    def _require_open(self) -> None:
        if self.is_closed:
            raise ClientClosed(backend=self._options.label)

    async def _open(self, parameters: dict[str, Any], until: float = math.inf) -> Connection:
        self._require_open()
        label, timeout = self._options.label, self._options.answer_timeout
        try:
            connection = await open_connection(
                self._wire, parameters, self._runtime, label, timeout, until=until, is_over=lambda: self.is_closed
            )
            await self._greeted(connection, until)
        except BackendError:
            self._require_open()
            raise
        return connection

    def _in_use(self) -> list[Connection]:
        used = [slot.connection() for slot in list(self._slots) if slot.connection is not None]
        return [*(each for each in used if each is not None and not each.is_broken()), *self._new]

    async def _greeted(self, connection: Connection, until: float) -> None:
        self._new.add(connection)
        try:
            await connection.greet(self._greet, own=True, until=until)
        except BaseException:
            connection.close()
            raise
        finally:
            self._new.discard(connection)

    def _too_busy(self) -> BackendUnavailable:
        return BackendUnavailable(
            f"all {self._options.connections} connections to {self._options.label} were busy; allow more with "
            "?connections=",
            backend=self._options.label,
        )

    # --- closing them

    def _put_back(self, connection: Connection) -> None:
        self._idle.appendleft(connection)
        if self.is_closed:
            self._close_idle(None)

    def _close_idle(self, before: float | None) -> None:
        """Close all idle connections, or those that are idle since before an instant; the longest idle comes first."""
        while True:
            try:
                connection = self._idle.popleft()
            except IndexError:
                return
            if before is not None and connection.idle_since > before:
                self._idle.appendleft(connection)
                return
            connection.close()

    def _start_worker(self) -> None:
        with self._guard:
            if self._has_worker or self.is_closed:
                return
            self._has_worker = True
        self._worker = start(self._runtime, self._work, "leasehold postgres connections")

    async def _work(self) -> None:
        """Close connections that are idle for too long, and do the maintenance, for as long as there are any."""
        try:
            while self._slots and not self.is_closed:
                self._wake.clear()
                await self._runtime.wait(self._wake, self._runtime.now() + LINGER / 2)
                await self._maintain()
                self._close_idle(self._runtime.now() - LINGER)
        except BaseException:  # the event loop is shut down
            self._close_idle(None)
            raise
        finally:
            self._has_worker = False
        if self._idle and not self.is_closed:  # given back just now, when there seemed to be a worker
            self._start_worker()

    async def _maintain(self) -> None:
        if self.maintenance is None or self.is_closed or not self._idle or not self.maintenance.is_due():
            return
        try:
            connection = self._idle.popleft()
        except IndexError:
            return
        try:
            await self.maintenance.run(connection)
        except BaseException as error:
            self.discard(connection, dead=isinstance(error, BackendError))
            if not isinstance(error, Exception):
                raise
            logger.debug("maintenance failed, and is left for later: %s", error)
        else:
            self._put_back(connection)
