"""The floor of all fences of a root: a number in the tree, which is zero until an operator raises it.

A fence is this floor plus the transaction number of the claim's creation. Transaction numbers rise with every write of
the ensemble, but an ensemble that is restored from a backup, or replaced, starts again lower: then the floor is raised.

Each session watches the floor. An event arrives on the connection before the answer to anything that happened later, so
a session knows the floor that was in force when a claim's turn came.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from kazoo.protocol.serialization import Create2, Exists, GetData, SetData, Sync

from leasehold.errors import BackendUnavailable
from leasehold.values import MAX_FENCE

if TYPE_CHECKING:
    from leasehold._backends.zookeeper.calls import Calls
    from leasehold._backends.zookeeper.keys import Paths
    from leasehold._backends.zookeeper.options import Options
    from leasehold._backends.zookeeper.session import Session
    from leasehold.spi import Runtime

__all__ = ["Fences"]

RAISE_TRIES = 10
ROOM = 2**33  # two elections of the ensemble, at each of which its transaction numbers jump


class Fences:
    """Reads, watches and raises the floor."""

    def __init__(self, options: Options, paths: Paths, runtime: Runtime, calls: Calls) -> None:
        self._options = options
        self._paths = paths
        self._runtime = runtime
        self._calls = calls

    async def known(self, session: Session, until: float) -> int:
        """The floor; read and watched if this session does not know it now."""
        while (floor := session.fence_floor) is None:
            await self._load(session, until)
            if session.fence_floor is not None and session.fence_floor < self._options.fence_floor:
                await self._raise(session, self._options.fence_floor, until)
        return floor

    async def last_transaction(self, session: Session) -> int:
        """A transaction number that is lower than that of every later creation."""
        await self._answer(session, Sync(self._paths.root), math.inf)
        return session.last_zxid

    async def raise_above(self, session: Session, fence: int, lowest: int) -> int:
        """Make every later fence higher than this; returns what they are higher than now.

        `lowest`: all claims that can still be granted have a higher transaction number. If that suffices, nothing is
        written: each raise uses up room that never comes back.
        """
        floor = await self.known(session, math.inf)
        if floor + lowest >= fence:
            return floor + lowest
        return await self._raise(session, fence, math.inf)

    async def _load(self, session: Session, until: float) -> None:
        """Read and watch it, also while there is none; the answers are recorded on the connection's own thread."""
        path, signal = self._paths.fence, self._runtime.signal()
        read = session.send(GetData(path, session.on_event), then=session.on_fence_floor)
        look = session.send(Exists(path, session.on_event), then=session.on_no_fence_floor, signal=signal)
        await self._calls.answer(session, look, until)
        if read.error is not None and not isinstance(read.error, NoNodeError):
            raise self._calls.translated(read.error)

    async def _raise(self, session: Session, fence: int, until: float) -> int:
        """Write a higher floor: so high that no fence that was counted from the old one reaches it."""
        for _ in range(RAISE_TRIES):
            found = await self._answer(session, GetData(self._paths.fence, None), until)
            floor, version = (0, -1) if found is None else (int(found[0]), found[1].version)
            if floor >= fence:
                return floor
            higher = min(max(fence, floor + session.last_zxid + ROOM), MAX_FENCE)
            if await self._write(session, higher, version, until):
                session.fence_floor = None
                return higher
        raise BackendUnavailable(
            "other clients raise the fences at the same time; try again", backend=self._calls.label
        )

    async def _write(self, session: Session, floor: int, version: int, until: float) -> bool:
        """False if another client was faster."""
        data = str(floor).encode()
        if version >= 0:
            return await self._answer(session, SetData(self._paths.fence, data, version), until) is not None
        path = ""
        for part in self._paths.root.split("/")[1:]:
            path += f"/{part}"
            await self._answer(session, Create2(path, b"", self._options.acl, 0), until)
        creation = Create2(self._paths.fence, data, self._options.acl, 0)
        return await self._answer(session, creation, until) is not None

    async def _answer(self, session: Session, request: Any, until: float) -> Any:
        """The answer; None if the node does not exist, or exists already, or has another version."""
        reply = session.send(request, confirms=True, signal=self._runtime.signal())
        await self._calls.finished(session, reply, until)
        if isinstance(reply.error, (NoNodeError, NodeExistsError, BadVersionError)):
            return None
        if reply.error is not None:
            raise self._calls.translated(reply.error)
        return reply.value
