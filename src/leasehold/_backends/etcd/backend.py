"""Locks in an etcd cluster: the verbs of the port, handed to the parts of the protocol.

acquire, queue, renew, release    the protocol
claims             what is stored for a claim, and the state in which its client remembers it
keys               from a lock's name to keys
sessions           the leases that claims live on
transactions       the requests of the protocol, as bytes
notifications      how a waiter is woken
fences             fencing tokens
inspect, records, doctor          the optional ports
connection, wire, pool            members, tokens, deadlines; gRPC
rpc, protobuf                     etcd's messages
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leasehold._backends.etcd.acquire import Acquirer
from leasehold._backends.etcd.claims import Claims
from leasehold._backends.etcd.connection import Connection, until
from leasehold._backends.etcd.doctor import Doctor
from leasehold._backends.etcd.fences import Fences
from leasehold._backends.etcd.inspect import Inspector
from leasehold._backends.etcd.keys import KeySpace, KeySuffixes
from leasehold._backends.etcd.notifications import Notifications
from leasehold._backends.etcd.queue import LocalQueue, StoreQueue
from leasehold._backends.etcd.records import Records
from leasehold._backends.etcd.release import Releaser
from leasehold._backends.etcd.renew import Renewer
from leasehold._backends.etcd.sessions import Sessions
from leasehold._backends.etcd.wire import open_wires
from leasehold.values import Capability

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._backends.etcd.options import Options
    from leasehold._backends.etcd.wire import Wire
    from leasehold.errors import BackendError
    from leasehold.findings import Finding
    from leasehold.spi import Place, Runtime
    from leasehold.values import Claim, Grant, LockState, Loss, Reading, Record, Refusal

__all__ = ["EtcdBackend"]


class EtcdBackend:
    """One client's connection to a cluster."""

    capabilities = frozenset(Capability) - {Capability.ABANDONED, Capability.PAUSE, Capability.RANGES}

    def __init__(self, options: Options, runtime: Runtime, wires: Sequence[Wire] = ()) -> None:
        """`wires`: those to use instead of gRPC's, one for each member."""
        self.label = options.label
        wires = wires or open_wires(options.targets, runtime, options.answer_timeout)
        self._connection = connection = Connection(
            wires, runtime, options.label, options.user, options.password, answer_timeout=options.answer_timeout
        )
        self._claims = claims = Claims(
            connection=connection,
            keys=KeySpace(options.root),
            sessions=Sessions(connection, runtime),
            fences=Fences(connection, options.fence_floor),
            suffixes=KeySuffixes(runtime),
            notifications=Notifications(connection, runtime),
            local_queue=LocalQueue(runtime),
            runtime=runtime,
        )
        self._queue = StoreQueue(claims)
        self._acquire = Acquirer(claims, self._queue)
        self._renew = Renewer(claims)
        self._release = Releaser(claims)
        self._inspect = Inspector(claims)
        self._records = Records(claims)
        self._doctor = Doctor(claims, options)

    async def try_acquire(self, claim: Claim, instant: float = math.inf, /) -> Grant | Refusal:
        with until(instant):
            return await self._acquire.try_acquire(claim)

    async def join(self, claim: Claim, instant: float = math.inf, /) -> Grant | Place | Refusal:
        with until(instant):
            return await self._acquire.join(claim)

    async def turn(self, place: Place, instant: float = math.inf, /) -> Grant | Place | Refusal:
        with until(instant):
            if place.claim.owner in self._claims.local_queue:
                return await self._acquire.join(place.claim)
            return await self._queue.turn(place)

    async def renew(
        self, grants: Sequence[Grant], instant: float = math.inf, /
    ) -> Sequence[Grant | Loss | BackendError]:
        with until(instant):
            return await self._renew.renew(grants)

    async def release(self, grant: Grant, instant: float = math.inf, /) -> bool | Loss:
        with until(instant):
            return await self._release.release(grant)

    async def withdraw(self, claim: Claim, instant: float = math.inf, /, *, doubt: bool = True) -> None:
        with until(instant):
            await self._acquire.withdraw(claim, doubt=doubt)

    async def inspect(self, key: str) -> LockState | None:
        with until(math.inf):
            return await self._inspect.inspect(key)

    async def list(self, prefix: str) -> Sequence[LockState]:
        with until(math.inf):
            return await self._inspect.states(prefix)

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        with until(math.inf):
            return await self._inspect.break_(key, fence, reason, now=now)

    async def raise_fence(self, key: str, fence: int) -> int:
        with until(math.inf):
            return await self._inspect.raise_fence(key, fence)

    async def read(self, key: str, fence: int = 0) -> Reading:
        with until(math.inf):
            return await self._records.read(key, fence)

    async def write(self, record: Record) -> bool:
        with until(math.inf):
            return await self._records.write(record)

    def grant_condition(self, grant: Grant) -> tuple[bytes, int, bytes] | None:
        return self._claims.condition(grant)

    async def examine(self) -> Sequence[Finding]:
        with until(math.inf):
            return await self._doctor.examine()

    async def close(self) -> None:
        self._connection.refuse()
        self._claims.local_queue.close()
        await self._claims.notifications.close()
        with until(math.inf):
            await self._claims.sessions.close()
        await self._connection.close()
