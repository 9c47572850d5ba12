"""`etcd://h1,h2,h3` and `etcds://`: locks in an etcd cluster. Here the parts become the verbs of the port.

    layout, seat       where a claim is stored, and what with it
    requests           the transactions of the protocol
    asking, waiting    getting a lock
    holding            keeping it and giving it back
    sessions           the leases that claims live on
    watching           how a waiter is woken
    floors             fences
    observing, records, examining    operators, small values, the doctor
    connection, wire   members, tokens, deadlines; gRPC

Nothing here decides anything.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leasehold.backends.etcd.asking import Asking
from leasehold.backends.etcd.backlog import Backlog
from leasehold.backends.etcd.connection import Connection, until
from leasehold.backends.etcd.examining import Examiner
from leasehold.backends.etcd.floors import Floors
from leasehold.backends.etcd.holding import Holdings
from leasehold.backends.etcd.layout import Layout
from leasehold.backends.etcd.observing import Observer
from leasehold.backends.etcd.records import Records
from leasehold.backends.etcd.sessions import Sessions
from leasehold.backends.etcd.slots import Slots
from leasehold.backends.etcd.toolbox import Toolbox
from leasehold.backends.etcd.waiting import Waiting
from leasehold.backends.etcd.watching import Watches
from leasehold.backends.etcd.wire import open_wires
from leasehold.values import Capability

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.backends.etcd.options import Options
    from leasehold.findings import Finding
    from leasehold.spi import Backend, Place, Runtime
    from leasehold.values import Claim, Grant, LockState, Loss, Reading, Record, Refusal

__all__ = ["EtcdBackend", "EtcdStore"]


class EtcdStore:
    """A cluster, named but not yet reached."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def open_backend(self, runtime: Runtime) -> Backend:
        """A client of its own; channels are opened with the first request."""
        return EtcdBackend(self._options, runtime)


class EtcdBackend:
    """A client's connection to a cluster."""

    capabilities = frozenset(Capability) - {Capability.ABANDONED}

    def __init__(self, options: Options, runtime: Runtime) -> None:
        self.label = options.label
        wires = open_wires(options.targets, runtime)
        self._connection = Connection(wires, runtime, options.label, options.user, options.password)
        self._sessions = Sessions(self._connection, runtime)
        self._watches = Watches(self._connection, runtime)
        self._backlog = Backlog(runtime)
        floors = Floors(self._connection, options.fence_floor)
        tools = Toolbox(
            connection=self._connection,
            layout=Layout(options.root),
            sessions=self._sessions,
            floors=floors,
            slots=Slots(runtime),
            watches=self._watches,
            backlog=self._backlog,
            runtime=runtime,
        )
        self._waiting = Waiting(tools)
        self._asking = Asking(tools, self._waiting)
        self._holdings = Holdings(tools)
        self._observer = Observer(tools)
        self._records = Records(tools)
        self._examiner = Examiner(tools, options)

    async def try_acquire(self, claim: Claim, instant: float = math.inf, /) -> Grant | Refusal:
        """See `Backend`."""
        with until(instant):
            return await self._asking.try_acquire(claim)

    async def join(self, claim: Claim, instant: float = math.inf, /) -> Grant | Place | Refusal:
        """See `Queueing`."""
        with until(instant):
            return await self._asking.join(claim)

    async def turn(self, place: Place, instant: float = math.inf, /) -> Grant | Place | Refusal:
        """See `Queueing`."""
        with until(instant):
            if place.claim.owner in self._backlog:
                return await self._asking.join(place.claim)
            return await self._waiting.turn(place)

    async def renew(self, grants: Sequence[Grant], instant: float = math.inf, /) -> Sequence[Grant | Loss]:
        """See `Backend`."""
        with until(instant):
            return await self._holdings.renew(grants)

    async def release(self, grant: Grant, instant: float = math.inf, /) -> bool | Loss:
        """See `Backend`."""
        with until(instant):
            return await self._holdings.release(grant)

    async def withdraw(self, claim: Claim, instant: float = math.inf, /, *, doubt: bool = True) -> None:
        """See `Backend`."""
        with until(instant):
            await self._asking.withdraw(claim, doubt=doubt)

    async def inspect(self, key: str) -> LockState | None:
        """See `Inspecting`."""
        with until(math.inf):
            return await self._observer.inspect(key)

    async def list(self, prefix: str) -> Sequence[LockState]:
        """See `Inspecting`."""
        with until(math.inf):
            return await self._observer.states(prefix)

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        """See `Inspecting`."""
        with until(math.inf):
            return await self._observer.break_(key, fence, reason, now=now)

    async def raise_fence(self, key: str, fence: int) -> int:
        """See `Inspecting`."""
        with until(math.inf):
            return await self._observer.raise_fence(key, fence)

    async def read(self, key: str, fence: int = 0) -> Reading:
        """See `Recording`."""
        with until(math.inf):
            return await self._records.read(key, fence)

    async def write(self, record: Record) -> bool:
        """See `Recording`."""
        with until(math.inf):
            return await self._records.write(record)

    def grant_condition(self, grant: Grant) -> tuple[bytes, int, bytes] | None:
        """See `Conditioning`."""
        return self._holdings.condition(grant)

    async def examine(self) -> Sequence[Finding]:
        """See `Examining`."""
        with until(math.inf):
            return await self._examiner.examine()

    async def close(self) -> None:
        """See `Backend`."""
        self._connection.refuse()
        self._backlog.close()
        await self._watches.close()
        with until(math.inf):
            await self._sessions.close()
        await self._connection.close()
