"""`local:` and `sqlite:////path`: locks in a file, for the processes and threads of one host, with every capability.

`Ledger` knows what requests mean and `LockFile` how to reach the file; here they become the verbs of the port. Each
call is one or two short transactions on the calling thread, also under asyncio: tens of microseconds, which is less
than handing them to another thread would cost. When another process is writing, the wait for it is the runtime's own
sleep, so that an event loop goes on.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple, Unpack

from leasehold._backends.sqlite import inspect, records
from leasehold._backends.sqlite.connection import Busy, LockFile
from leasehold._backends.sqlite.ledger import Ledger
from leasehold._backends.sqlite.maintenance import Cleaning
from leasehold._backends.sqlite.notifications import Notifications
from leasehold.errors import BackendError, BackendUnavailable
from leasehold.kit.worker import Worker
from leasehold.values import Capability

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from leasehold._backends.sqlite.host import Host
    from leasehold._backends.sqlite.options import Location
    from leasehold.findings import Finding
    from leasehold.spi import Place, Runtime
    from leasehold.values import Claim, Grant, Holder, LockState, Loss, Reading, Record, Refusal

__all__ = ["SqliteBackend"]

PATIENCE = 1.0  # how long a call waits for other connections; the core asks again after that
FIRST_PAUSE, LONGEST_PAUSE = 0.00003, 0.005
BATCH = 500  # renewals in one transaction; others get their turn in between

T = TypeVar("T")
Given = TypeVarTuple("Given")


class SqliteBackend:
    """A client's connection to a lock file."""

    capabilities = frozenset(Capability) - {Capability.SESSION}
    is_private = False

    def __init__(
        self, location: Location, host: Host, runtime: Runtime, synchronous: str = "normal", fence_floor: int = 0
    ) -> None:
        self._runtime = runtime
        self._host = host
        self._location = location
        self._file = LockFile(location, host, synchronous)
        self._notifications = Notifications(location.path)
        self._worker = Worker(runtime, self._clean, "leasehold sqlite cleaning")
        self._cleaner = Cleaning(host, self._worker.start)
        self._ledger = Ledger(host, self._notifications, self._cleaner, location.label, fence_floor, now=runtime.now)
        self.label = location.label

    def exists(self) -> bool:
        return not self._file.is_missing()

    async def try_acquire(self, claim: Claim, until: float = math.inf, /) -> Grant | Refusal:
        return await self._perform(until, self._ledger.try_acquire, claim)

    async def join(self, claim: Claim, until: float = math.inf, /) -> Grant | Place | Refusal:
        try:
            return self._file.perform(self._ledger.join, claim, self._runtime.signal)
        except Busy:
            return await self._perform(until, self._ledger.join, claim, self._runtime.signal)

    async def turn(self, place: Place, until: float = math.inf, /) -> Grant | Place | Refusal:
        return await self._perform(until, self._ledger.turn, place)

    async def renew(self, grants: Sequence[Grant], until: float = math.inf, /) -> Sequence[Grant | Loss | BackendError]:
        answers: list[Grant | Loss | BackendError] = []
        for start in range(0, len(grants), BATCH):
            if start:
                await self._runtime.sleep(0)
            try:
                answers += await self._perform(until, self._ledger.renew, grants[start : start + BATCH])
            except BackendError as error:
                if not start:
                    raise
                return [*answers, *[error] * (len(grants) - start)]  # those before it are renewed
        return answers

    async def release(self, grant: Grant, until: float = math.inf, /) -> bool | Loss:
        try:
            return self._file.perform(self._ledger.release, grant)
        except Busy:
            return await self._perform(until, self._ledger.release, grant)

    async def withdraw(self, claim: Claim, until: float = math.inf, /, *, doubt: bool = True) -> None:
        await self._perform(until, self._ledger.withdraw, claim, doubt)

    async def inspect(self, key: str) -> LockState | None:
        if self._file.is_missing():  # looking makes no file: its name may be misspelt
            return None
        return await self._perform(math.inf, inspect.inspect, self._host, key)

    async def list(self, prefix: str) -> Sequence[LockState]:
        if self._file.is_missing():
            return []
        return await self._perform(math.inf, inspect.list_states, self._host, prefix)

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        return await self._perform(math.inf, self._ledger.break_, key, fence, reason, now)

    async def raise_fence(self, key: str, fence: int) -> int:
        return await self._perform(math.inf, self._ledger.raise_fence, key, fence)

    async def pause(self, key: str, by: Holder, seconds: float) -> None:
        await self._perform(math.inf, self._ledger.pause, key, by, seconds)

    async def resume(self, key: str) -> bool:
        return await self._perform(math.inf, self._ledger.resume, key)

    async def read(self, key: str, fence: int = 0) -> Reading:
        return await self._perform(math.inf, records.read_record, self._host, key, fence)

    async def write(self, record: Record) -> bool:
        return await self._perform(math.inf, records.write_record, self._host, record)

    async def examine(self) -> Sequence[Finding]:
        from leasehold._backends.sqlite.doctor import examine_file, examine_journal  # noqa: PLC0415 - for doctors only

        findings = list(examine_file(self._location))
        if not self._file.is_missing():
            with contextlib.suppress(BackendError):  # that it does not open is a finding of every doctor
                findings.append(await self._perform(math.inf, examine_journal))
        return findings

    async def close(self) -> None:
        await self._worker.close()
        self._file.close()
        self._notifications.close()  # last: a waiter that it wakes finds the file closed, and gives up

    async def _clean(self) -> None:
        self._file.perform(self._cleaner.clean)

    async def _perform(self, until: float, work: Callable[[sqlite3.Connection, Unpack[Given]], T], *given: *Given) -> T:
        """Do the work; while another connection is writing, wait a moment and ask again, for a bounded time.

        There is always one try, which takes no time worth speaking of unless the disk itself hangs.
        """
        runtime, pause = self._runtime, FIRST_PAUSE
        deadline: float | None = None
        while True:
            try:
                return self._file.perform(work, *given)
            except Busy as busy:
                now = runtime.now()
                if deadline is None:
                    deadline = min(now + PATIENCE, until)
                if now >= deadline:
                    raise BackendUnavailable(str(busy), backend=self.label) from busy.__cause__
            await runtime.sleep(min(pause * (0.5 + runtime.random()), deadline - now))
            pause = min(pause * 1.5, LONGEST_PAUSE)
