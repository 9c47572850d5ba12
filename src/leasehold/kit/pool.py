"""A few connections of one client, each used for the time of one request. It knows nothing of locks, nor of a driver.

An idle connection is closed after a while, so that an idle client holds none. A connection whose call did not come to
its end (a timeout, a cancelled task, an exception out of a signal handler) is closed too: its next answer belongs to
that call. Slots are referred to weakly, so that the slot of a call that was interrupted becomes free by itself.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from weakref import WeakSet, ref

from leasehold.errors import BackendError, BackendUnavailable, ClientClosed
from leasehold.kit.pool_queue import PoolQueue, Slot
from leasehold.kit.worker import spawn_late

if TYPE_CHECKING:
    from leasehold.spi import Runtime, Task

__all__ = ["BUSY", "CLOSE_PATIENCE", "LINGER", "Maintenance", "Pool", "Pooled"]

LINGER = 2.0  # how long an idle connection stays open
CLOSE_PATIENCE = 1.0  # how long close() waits for the worker
BUSY = 3  # answer timeouts to wait for a connection: the calls before this one may each take one


class Pooled(Protocol):
    """A connection. `slot` and `idle_since` belong to the pool."""

    slot: Any
    idle_since: float

    def is_usable(self) -> bool:
        """Whether the server has not ended it while it was idle. Sends nothing."""

    def is_broken(self) -> bool:
        """Whether it has failed or was closed."""

    def close(self) -> None:
        """Close it; a request that is under way may still be applied."""


C = TypeVar("C", bound=Pooled)
C_contra = TypeVar("C_contra", contravariant=True)


class Maintenance(Protocol[C_contra]):
    """A small request that is due now and then, for a connection that is idle anyway."""

    def is_due(self) -> bool:
        """True once per interval; the caller that gets True must run it."""

    async def run(self, connection: C_contra, /) -> None:
        """Send the request. If it fails, the next interval is soon enough."""


class Pool(Generic[C]):
    """At most `limit` connections; a store says how one is opened and how its wait is ended."""

    product = "store"  # for the names of threads and loggers

    def __init__(self, runtime: Runtime, label: str, limit: int, answer_timeout: float) -> None:
        self._runtime = runtime
        self._label = label
        self._limit = limit
        self._patience = BUSY * answer_timeout
        self._idle: deque[C] = deque()
        self._new: WeakSet[C] = WeakSet()  # connected, and not ready for a request yet
        self._slots: WeakSet[Slot] = WeakSet()
        self._guard = runtime.guard()
        self._queue = PoolQueue(runtime)
        self._wake = runtime.signal()
        self._has_worker = False
        self._worker: Task | None = None
        self.is_closed: bool = False
        self.maintenance: Maintenance[C] | None = None

    # --- for the store to fill in

    async def _open(self, until: float) -> C:
        """A new connection, ready for requests; in `_new` for as long as it is not."""
        raise NotImplementedError

    def _interrupt(self, connection: C) -> None:
        """End a wait for this connection, from any thread."""
        raise NotImplementedError

    # --- taking and giving

    async def take(self, until: float = math.inf, *, first: bool = False, extra: bool = False) -> C:
        """A connection for one call, by `until`.

        `first`: ahead of all calls without it that wait. `extra`: may go beyond the limit by one connection.
        """
        queue = self._queue
        while True:
            found: C | Slot | None = None
            if extra or (not queue.first and (first or not queue.rest)):
                try:
                    found = self._idle.pop()
                except IndexError:
                    found = self._new_slot(extra=extra)
            if found is None:
                deadline = min(self._runtime.now() + self._patience, until)
                found = await queue.wait_for(lambda: self._look(extra=extra), deadline, self._require_open, first=first)
            if found is None:
                raise self._too_busy()
            connection = await self._fill(found, until) if isinstance(found, Slot) else found
            if connection.is_usable():
                if self.is_closed:
                    self._interrupt(connection)
                return connection
            connection.close()

    def _look(self, *, extra: bool) -> C | Slot | None:
        """An idle connection, or a slot for a new one."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._new_slot(extra=extra)

    def give(self, connection: C) -> None:
        """The call came to its end: the connection may be used again."""
        connection.idle_since = self._runtime.now()
        self._idle.append(connection)
        if self.is_closed:
            self._close_idle(None)
        if self._queue.first or self._queue.rest:
            self._queue.call_one()
        if not self._has_worker:
            self._start_worker()

    def discard(self, connection: C, *, dead: bool) -> None:
        """It did not: close the connection. `dead`: it failed, and idle ones may have failed with it."""
        connection.close()
        connection.slot = None
        if dead:
            self._close_idle(None)
        self._queue.call_one()

    async def close(self) -> None:
        """Close all connections; calls that run or wait end with `ClientClosed`."""
        self.is_closed = True
        self._close_idle(None)
        for connection in self._in_use():
            self._interrupt(connection)
        self._queue.call_all()
        self._wake.set()
        if self._worker is not None:
            await self._worker.join(self._runtime.now() + CLOSE_PATIENCE)

    # --- making connections

    async def _fill(self, slot: Slot, until: float) -> C:
        try:
            connection = await self._open(until)
        except BaseException:
            self._slots.discard(slot)  # the error may live on, and what it refers to with it
            raise
        slot.is_used = True
        connection.slot, slot.connection = slot, ref(connection)
        return connection

    def _new_slot(self, *, extra: bool) -> Slot | None:
        slot, limit = Slot(self._runtime.current()), self._limit + extra
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
            raise ClientClosed(backend=self._label)

    def _in_use(self) -> list[C]:
        used = [slot.connection() for slot in list(self._slots) if slot.connection is not None]
        return [*(each for each in used if each is not None and not each.is_broken()), *self._new]

    def _too_busy(self) -> BackendUnavailable:
        return BackendUnavailable(
            f"all {self._limit} connections to {self._label} were busy; allow more with ?connections=",
            backend=self._label,
        )

    # --- closing them

    def _put_back(self, connection: C) -> None:
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
        self._worker = spawn_late(self._runtime, self._work, f"leasehold {self.product} connections")

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
            logging.getLogger(f"leasehold.{self.product}").debug("maintenance failed, and is left for later: %s", error)
        else:
            self._put_back(connection)
