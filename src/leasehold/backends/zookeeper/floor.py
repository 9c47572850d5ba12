"""What all fences of a root are counted from: a number in the tree, which is zero until an operator raises it.

A fence is this floor plus the transaction number of the claim's creation. Transaction numbers rise with every write of
the ensemble, but an ensemble that is restored from a backup, or replaced, starts again lower: then the floor is raised.

Each session watches the floor. An event comes on the connection before the answer to anything that happened later, so
the floor that a session knows is the one that was there when a claim's turn came.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from kazoo.protocol.serialization import Create2, Exists, GetData, SetData, Sync

from leasehold.errors import BackendUnavailable
from leasehold.values import MAX_FENCE

if TYPE_CHECKING:
    from leasehold.backends.zookeeper.asking import Asker
    from leasehold.backends.zookeeper.nodes import Paths
    from leasehold.backends.zookeeper.session import Session
    from leasehold.backends.zookeeper.settings import Settings
    from leasehold.spi import Runtime

__all__ = ["Floor"]

RAISE_TRIES = 10
ROOM = 2**33  # two elections of the ensemble, each of which lets its numbers jump


class Floor:
    """Reads, watches and raises it."""

    def __init__(self, settings: Settings, paths: Paths, runtime: Runtime, asker: Asker) -> None:
        self._settings = settings
        self._paths = paths
        self._runtime = runtime
        self._asker = asker

    async def known(self, session: Session, until: float) -> int:
        """The floor; read and watched if this session does not know it now."""
        while (floor := session.floor) is None:
            await self._load(session, until)
            if session.floor is not None and session.floor < self._settings.fence_floor:
                await self._raise(session, self._settings.fence_floor, until)
        return floor

    async def seen(self, session: Session) -> int:
        """A transaction number that is lower than that of every creation from now on."""
        await self._answer(session, Sync(self._paths.root), math.inf)
        return session.last_zxid

    async def raise_above(self, session: Session, fence: int, lowest: int) -> int:
        """Make every later fence higher than this; returns what they are higher than now.

        `lowest`: all who can still be granted have a higher transaction number. If that is enough, nothing is written:
        each raise uses up room that is never given back.
        """
        floor = await self.known(session, math.inf)
        if floor + lowest >= fence:
            return floor + lowest
        return await self._raise(session, fence, math.inf)

    async def _load(self, session: Session, until: float) -> None:
        """Read it and watch it, also while there is none; the answers are noted on the connection's own thread."""
        path = self._paths.fence
        read = session.send(GetData(path, session.on_event), then=session.on_floor)
        look = session.send(Exists(path, session.on_event), then=session.on_no_floor, signal=self._runtime.signal())
        await self._asker.answer(session, look, until)
        if read.error is not None and not isinstance(read.error, NoNodeError):
            raise self._asker.translated(read.error)

    async def _raise(self, session: Session, fence: int, until: float) -> int:
        """Write a higher floor: so high that no fence that was counted from the old one reaches it."""
        for _ in range(RAISE_TRIES):
            found = await self._answer(session, GetData(self._paths.fence, None), until)
            floor, version = (0, -1) if found is None else (int(found[0]), found[1].version)
            if floor >= fence:
                return floor
            higher = min(max(fence, floor + session.last_zxid + ROOM), MAX_FENCE)
            if await self._write(session, higher, version, until):
                session.floor = None
                return higher
        raise BackendUnavailable("others raise the fences at the same time; ask again", backend=self._asker.label)

    async def _write(self, session: Session, floor: int, version: int, until: float) -> bool:
        """False if somebody else was quicker."""
        data = str(floor).encode()
        if version >= 0:
            return await self._answer(session, SetData(self._paths.fence, data, version), until) is not None
        path = ""
        for part in self._paths.root.split("/")[1:]:
            path += f"/{part}"
            await self._answer(session, Create2(path, b"", self._settings.acl, 0), until)
        made = Create2(self._paths.fence, data, self._settings.acl, 0)
        return await self._answer(session, made, until) is not None

    async def _answer(self, session: Session, request: Any, until: float) -> Any:
        """The answer; None if the node is not there, or is there already, or is not what it was."""
        reply = session.send(request, proves=True, signal=self._runtime.signal())
        await self._asker.finished(session, reply, until)
        if isinstance(reply.error, (NoNodeError, NodeExistsError, BadVersionError)):
            return None
        if reply.error is not None:
            raise self._asker.translated(reply.error)
        return reply.value
