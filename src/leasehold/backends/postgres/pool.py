"""A few connections of one client, for requests that each need one for a moment. It knows nothing of locks.

A connection that has been idle for a while is closed, so that an idle client holds none. A connection whose call did
not come to its end (a timeout, a cancelled task, an exception out of a signal handler) is closed too: what it would
answer next belongs to nobody. A place in the pool is known weakly, so that one that got lost on the way is free again
by itself.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet, ref

from leasehold.backends.postgres import trouble
from leasehold.backends.postgres.background import start
from leasehold.backends.postgres.line import GOOD, Line, open_line
from leasehold.backends.postgres.pool_places import Queue, Slot
from leasehold.errors import BackendError, BackendUnavailable, ClientClosed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from psycopg.pq.abc import PGresult

    from leasehold.backends.postgres.line import Wire
    from leasehold.backends.postgres.schema import Schema
    from leasehold.backends.postgres.settings import Settings
    from leasehold.backends.postgres.statements import Statement
    from leasehold.spi import Runtime, Task

__all__ = ["Asking", "Chore", "OwnPool", "Source"]

LINGER = 2.0  # how long an idle connection stays open
GOODBYE = 1.0  # how long the end of the housekeeper is waited for
BUSY = 3  # how many answer timeouts to wait for a connection: others may be waiting for an answer, too

logger = logging.getLogger("leasehold.postgres")


class Source(Protocol):
    """Where connections for single requests come from."""

    is_closed: bool

    async def take(self, until: float = math.inf, *, urgent: bool = False) -> Line:
        """A line that nobody else uses, by `until`; an urgent request may go beyond the limit by one."""

    def give(self, line: Line) -> None:
        """The call came to its end: the line may be used again."""

    def discard(self, line: Line, *, dead: bool) -> None:
        """It did not: close it. `dead`: the connection failed, and others may have died with it."""

    async def close(self) -> None:
        """Let go of everything; calls that are under way or wait for a line end with `ClientClosed`."""


class Chore(Protocol):
    """Something small that has to be done now and then, on a connection that is idle anyway."""

    def is_due(self) -> bool:
        """Whether it is time to do it. Whoever is told so does it: for a while nobody else is."""

    async def do(self, line: Line) -> None:
        """Do it; another time will do as well."""


class Asking:
    """Single requests over a source: the tables are made when they are missed, and errors get their words."""

    def __init__(self, source: Source, schema: Schema, label: str, runtime: Runtime) -> None:
        self.source = source
        self.label = label
        self._schema = schema
        self._runtime = runtime

    async def ask(
        self, statement: Statement, values: Sequence[bytes | None], until: float = math.inf, *, urgent: bool = False
    ) -> PGresult:
        """One request, one round trip, over by `until`.

        A refused one was surely not applied; then the missing tables are made.
        """
        answer = await self._try(statement, values, until, urgent=urgent)
        if answer.status in GOOD:
            return answer
        code = trouble.sqlstate(answer)
        if code in trouble.UNPREPARED or (code in trouble.MISSING and await self._make_schema(until)):
            answer = await self._try(statement, values, until, urgent=urgent)
        if answer.status not in GOOD:
            raise trouble.translated(answer, self.label)
        return answer

    async def _try(
        self, statement: Statement, values: Sequence[bytes | None], until: float, *, urgent: bool
    ) -> PGresult:
        line = await self.source.take(until, urgent=urgent)
        try:
            answer = await line.ask(statement, values, until)
            if answer.status not in GOOD:
                self._look_at(line, answer)
        except BaseException as error:
            self._discard(line, error, until)
            raise
        self.source.give(line)
        return answer

    def _discard(self, line: Line, error: BaseException, until: float) -> None:
        """Let go of a line whose call failed. A caller that had little time says nothing about other connections."""
        in_a_hurry = self._runtime.now() >= until and not line.is_broken()
        self.source.discard(line, dead=isinstance(error, BackendError) and not in_a_hurry)
        if self.source.is_closed and isinstance(error, BackendError):
            raise ClientClosed(backend=self.label) from None

    def _look_at(self, line: Line, answer: PGresult) -> None:
        code = trouble.sqlstate(answer)
        if trouble.is_fatal(answer):
            raise trouble.translated(answer, self.label)
        if trouble.is_stale(code):
            raise trouble.translated(answer, self.label)
        if code in trouble.UNPREPARED:
            line.forget_prepared()

    async def _make_schema(self, until: float) -> bool:
        line = await self.source.take(until)
        try:
            made = await self._schema.make(line, until)
        except BaseException as error:
            self._discard(line, error, until)
            raise
        self.source.give(line)
        return made


class OwnPool:
    """Connections that we make ourselves."""

    def __init__(
        self, settings: Settings, parameters: Mapping[str, Any], wire: Wire, runtime: Runtime, greet: Statement
    ):
        self._settings = settings
        self._parameters = dict(parameters)
        self._wire = wire
        self._runtime = runtime
        self._greet = greet
        self._idle: deque[Line] = deque()
        self._new: WeakSet[Line] = WeakSet()  # connected, and not yet asked who answers
        self._slots: WeakSet[Slot] = WeakSet()
        self._guard = runtime.guard()
        self._queue = Queue(runtime)
        self._wake = runtime.signal()
        self._keeps_house = False
        self._housekeeper: Task | None = None
        self.is_closed = False
        self.chore: Chore | None = None

    async def take(self, until: float = math.inf, *, urgent: bool = False) -> Line:
        """See `Source`."""
        while True:
            found = self._look(urgent=urgent) if urgent or self._queue.is_empty() else None
            if found is None:
                deadline = min(self._runtime.now() + BUSY * self._settings.answer_timeout, until)
                found = await self._queue.wait_for(lambda: self._look(urgent=urgent), deadline, self._require_open)
            if found is None:
                raise self._too_busy()
            line = await self._fill(found, until) if isinstance(found, Slot) else found
            if line.is_usable():
                if self.is_closed:
                    self._wire.interrupt(line)
                return line
            line.close()

    def _look(self, *, urgent: bool) -> Line | Slot | None:
        """An idle line, or room for another one."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._new_slot(self._settings.connections + urgent)

    def give(self, line: Line) -> None:
        """See `Source`."""
        line.idle_since = self._runtime.now()
        self._idle.append(line)
        if self.is_closed:
            self._close_idle(None)
        self._queue.call_one()
        if not self._keeps_house:
            self._start_housekeeper()

    def discard(self, line: Line, *, dead: bool) -> None:
        """See `Source`."""
        line.close()
        line.slot = None
        if dead:
            self._close_idle(None)
        self._queue.call_one()

    async def dedicated(self) -> Line:
        """A line for one who keeps it for longer, and closes it."""
        return await self._open(self._parameters)

    async def open_by(self, parameters: Mapping[str, Any]) -> Line:
        """A line by another way, which its user closes."""
        return await self._open(dict(parameters))

    async def close(self) -> None:
        """See `Source`."""
        self.is_closed = True
        self._close_idle(None)
        for line in self._in_use():
            self._wire.interrupt(line)
        self._queue.call_all()
        self._wake.set()
        if self._housekeeper is not None:
            await self._housekeeper.join(self._runtime.now() + GOODBYE)

    # --- making connections

    async def _fill(self, slot: Slot, until: float) -> Line:
        try:
            line = await self._open(self._parameters, until)
        except BaseException:
            self._slots.discard(slot)  # the error may live on, and what it refers to with it
            raise
        slot.is_used = True
        line.slot, slot.line = slot, ref(line)
        return line

    def _new_slot(self, limit: int) -> Slot | None:
        slot = Slot(self._runtime.current())
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
            raise ClientClosed(backend=self._settings.label)

    async def _open(self, parameters: dict[str, Any], until: float = math.inf) -> Line:
        self._require_open()
        label, timeout = self._settings.label, self._settings.answer_timeout
        try:
            line = await open_line(
                self._wire, parameters, self._runtime, label, timeout, until=until, is_over=lambda: self.is_closed
            )
            await self._greeted(line, until)
        except BackendError:
            self._require_open()
            raise
        return line

    def _in_use(self) -> list[Line]:
        lines = [slot.line() for slot in list(self._slots) if slot.line is not None]
        return [*(line for line in lines if line is not None and not line.is_broken()), *self._new]

    async def _greeted(self, line: Line, until: float) -> None:
        self._new.add(line)
        try:
            await line.greet(self._greet, own=True, until=until)
        except BaseException:
            line.close()
            raise
        finally:
            self._new.discard(line)

    def _too_busy(self) -> BackendUnavailable:
        return BackendUnavailable(
            f"all {self._settings.connections} connections to {self._settings.label} were busy; allow more with "
            "?connections=",
            backend=self._settings.label,
        )

    # --- letting them go

    def _put_back(self, line: Line) -> None:
        self._idle.appendleft(line)
        if self.is_closed:
            self._close_idle(None)

    def _close_idle(self, before: float | None) -> None:
        """Close the idle ones, or those that are idle since before an instant; the longest idle is first in line."""
        while True:
            try:
                line = self._idle.popleft()
            except IndexError:
                return
            if before is not None and line.idle_since > before:
                self._idle.appendleft(line)
                return
            line.close()

    def _start_housekeeper(self) -> None:
        with self._guard:
            if self._keeps_house or self.is_closed:
                return
            self._keeps_house = True
        self._housekeeper = start(self._runtime, self._keep_house, "leasehold postgres connections")

    async def _keep_house(self) -> None:
        try:
            while self._slots and not self.is_closed:
                self._wake.clear()
                await self._runtime.wait(self._wake, self._runtime.now() + LINGER / 2)
                await self._do_chore()
                self._close_idle(self._runtime.now() - LINGER)
        except BaseException:  # the event loop is shut down
            self._close_idle(None)
            raise
        finally:
            self._keeps_house = False
        if self._idle and not self.is_closed:  # somebody gave one back just now
            self._start_housekeeper()

    async def _do_chore(self) -> None:
        if self.chore is None or self.is_closed or not self._idle or not self.chore.is_due():
            return
        try:
            line = self._idle.popleft()
        except IndexError:
            return
        try:
            await self.chore.do(line)
        except BaseException as error:
            self.discard(line, dead=isinstance(error, BackendError))
            if not isinstance(error, Exception):
                raise
            logger.debug("a chore was not done, and is left for later: %s", error)
        else:
            self._put_back(line)
