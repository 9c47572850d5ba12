"""`local:` and `sqlite:////path`: locks in a file, for the processes and threads of one host, with every capability.

`Ledger` knows what requests mean and `LockFile` how to reach the file; here they become the verbs of the port. Each
call is one or two short transactions on the calling thread, also under asyncio: tens of microseconds, which is less
than handing them to another thread would cost. When another process is writing, the wait for it is the runtime's own
sleep, so that an event loop goes on.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple, Unpack

from leasehold.backends.sqlite import observing
from leasehold.backends.sqlite.cleaning import Cleaner
from leasehold.backends.sqlite.file import Busy, LockFile
from leasehold.backends.sqlite.host import ThisHost
from leasehold.backends.sqlite.ledger import Ledger
from leasehold.backends.sqlite.location import locate
from leasehold.backends.sqlite.wakeup import Bells
from leasehold.errors import BackendUnavailable, ConfigurationError
from leasehold.values import MAX_FENCE, Capability

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from leasehold.backends.sqlite.host import Host
    from leasehold.backends.sqlite.location import Location
    from leasehold.errors import BackendError
    from leasehold.spi import Backend, Place, Runtime, Store
    from leasehold.store_url import StoreURL
    from leasehold.values import Claim, Grant, LockState, Loss, Reading, Record, Refusal

__all__ = ["SqliteBackend", "SqliteStore", "open_url"]

SYNCHRONOUS = ("off", "normal", "full")
PATIENCE = 1.0  # how long a call waits for other connections; the core asks again after that
FIRST_PAUSE, LONGEST_PAUSE = 0.0001, 0.005
BATCH = 500  # renewals in one transaction; others get their turn in between

T = TypeVar("T")
Given = TypeVarTuple("Given")


class SqliteStore:
    """A lock file, named but not yet opened."""

    def __init__(
        self,
        location: Location,
        *,
        synchronous: str = "normal",
        fence_floor: int = 0,
        host: Host | None = None,
    ) -> None:
        self._location = location
        self._synchronous = synchronous
        self._fence_floor = fence_floor
        self._host = host

    def open_backend(self, runtime: Runtime) -> Backend:
        """A connection of its own for each client; the file is opened with the first request."""
        host = self._host or ThisHost()
        return SqliteBackend(self._location, host, runtime, self._synchronous, self._fence_floor)


class SqliteBackend:
    """A client's connection to a lock file."""

    capabilities = frozenset(Capability) - {Capability.SESSION}
    is_private = False

    def __init__(
        self, location: Location, host: Host, runtime: Runtime, synchronous: str = "normal", fence_floor: int = 0
    ) -> None:
        self._runtime = runtime
        self._host = host
        self._file = LockFile(location, host, synchronous)
        self._bells = Bells(location.path)
        self._ledger = Ledger(host, self._bells, Cleaner(host), location.label, fence_floor)
        self.label = location.label

    def exists(self) -> bool:
        """See `Embedded`."""
        return not self._file.is_missing()

    async def try_acquire(self, claim: Claim, until: float = math.inf, /) -> Grant | Refusal:
        """See `Backend`."""
        return await self._perform(until, self._ledger.try_acquire, claim)

    async def join(self, claim: Claim, until: float = math.inf, /) -> Grant | Place | Refusal:
        """See `Queueing`."""
        try:
            return self._file.perform(self._ledger.join, claim, self._runtime.signal)
        except Busy:
            return await self._perform(until, self._ledger.join, claim, self._runtime.signal)

    async def turn(self, place: Place, until: float = math.inf, /) -> Grant | Place | Refusal:
        """See `Queueing`."""
        return await self._perform(until, self._ledger.turn, place)

    async def renew(self, grants: Sequence[Grant], until: float = math.inf, /) -> Sequence[Grant | Loss | BackendError]:
        """See `Backend`."""
        answers: list[Grant | Loss | BackendError] = []
        for start in range(0, len(grants), BATCH):
            if start:
                await self._runtime.sleep(0)
            try:
                answers += await self._perform(until, self._ledger.renew, grants[start : start + BATCH])
            except BackendUnavailable as error:
                if not start:
                    raise
                return [*answers, *[error] * (len(grants) - start)]  # those before it are renewed
        return answers

    async def release(self, grant: Grant, until: float = math.inf, /) -> bool | Loss:
        """See `Backend`."""
        try:
            return self._file.perform(self._ledger.release, grant)
        except Busy:
            return await self._perform(until, self._ledger.release, grant)

    async def withdraw(self, claim: Claim, until: float = math.inf, /, *, doubt: bool = True) -> None:
        """See `Backend`."""
        await self._perform(until, self._ledger.withdraw, claim, doubt)

    async def inspect(self, key: str) -> LockState | None:
        """See `Inspecting`. Looking makes no file: its name may be misspelt."""
        if self._file.is_missing():
            return None
        return await self._perform(math.inf, observing.inspect, self._host, key)

    async def list(self, prefix: str) -> Sequence[LockState]:
        """See `Inspecting`."""
        if self._file.is_missing():
            return []
        return await self._perform(math.inf, observing.list_states, self._host, prefix)

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        """See `Inspecting`."""
        return await self._perform(math.inf, self._ledger.break_, key, fence, reason, now)

    async def raise_fence(self, key: str, fence: int) -> int:
        """See `Inspecting`."""
        return await self._perform(math.inf, self._ledger.raise_fence, key, fence)

    async def read(self, key: str, fence: int = 0) -> Reading:
        """See `Recording`."""
        return await self._perform(math.inf, observing.read_record, self._host, key, fence)

    async def write(self, record: Record) -> bool:
        """See `Recording`."""
        return await self._perform(math.inf, observing.write_record, self._host, record)

    async def close(self) -> None:
        """See `Backend`."""
        self._file.close()
        self._bells.close()  # last: whoever is woken by it finds the file closed, and gives up

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


def open_url(url: StoreURL) -> Store:
    """`local:` is the file of this user on this host; `sqlite:////path` is one that others may share."""
    url.refuse_options("fence_floor", "synchronous")
    synchronous = url.options.get("synchronous", "normal").lower()
    if synchronous not in SYNCHRONOUS:
        raise ConfigurationError(f"synchronous must be one of {', '.join(SYNCHRONOUS)}, not {synchronous!r}")
    floor = url.options.get("fence_floor", "0")
    if not floor.isdecimal() or int(floor) >= MAX_FENCE:
        raise ConfigurationError("fence_floor must be the highest fence that was given by the store used before")
    return SqliteStore(locate(url), synchronous=synchronous, fence_floor=int(floor))
