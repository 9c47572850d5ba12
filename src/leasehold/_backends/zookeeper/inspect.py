"""For operators: the state of locks, breaking a grant, raising fences.

Everything is read from the tree, whichever client wrote it. The ensemble does not publish when a session will end, so
`expires_in` is the whole session timeout: how long the node stays if its holder vanishes now.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import BadVersionError, NoNodeError
from kazoo.protocol.serialization import Create2, Delete, Exists, GetChildren, GetData, SetData, Sync

from leasehold._backends.zookeeper.keys import BREAK_NOTE, NodeData, Sibling, key_of, parse_node
from leasehold._backends.zookeeper.queue import split
from leasehold._backends.zookeeper.validity import VALID_PART
from leasehold._backends.zookeeper.wire import EPHEMERAL_SEQUENTIAL
from leasehold.errors import BackendUnavailable, OutcomeUnknown
from leasehold.values import Holding, LockState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._backends.zookeeper.calls import Calls
    from leasehold._backends.zookeeper.fences import Fences
    from leasehold._backends.zookeeper.keys import Paths
    from leasehold._backends.zookeeper.options import Options
    from leasehold._backends.zookeeper.pool import Pool
    from leasehold._backends.zookeeper.session import Session
    from leasehold._backends.zookeeper.wire import Reply
    from leasehold.spi import Runtime

__all__ = ["READ_TTL", "Inspector"]

READ_TTL = 10.0  # of a session that is opened only to read
BATCH = 100  # reads that are under way at the same time


class Inspector:
    """Reads and operates the locks of one root."""

    def __init__(
        self, options: Options, paths: Paths, *, runtime: Runtime, calls: Calls, pool: Pool, fences: Fences
    ) -> None:
        self._options = options
        self._paths = paths
        self._runtime = runtime
        self._calls = calls
        self._pool = pool
        self._fences = fences

    async def inspect(self, key: str) -> LockState | None:
        """The holders and waiters of one lock."""
        session = await self._session()
        names = await self._children(session, self._paths.lock(key))
        return await self._state(session, key, names)

    async def list(self, prefix: str) -> Sequence[LockState]:
        """All locks in use whose key has this prefix."""
        session = await self._session()
        children = await self._children(session, self._paths.locks)
        keys = sorted(key for key in map(key_of, children) if key.startswith(prefix))
        lists = await self._read_all(session, [GetChildren(self._paths.lock(key), None) for key in keys])
        states = [await self._state(session, key, names or ()) for key, names in zip(keys, lists, strict=True)]
        return [state for state in states if state is not None]

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        """End the grant with this fence."""
        session = await self._session()
        names = await self._children(session, self._paths.lock(key))
        for sibling in split(_in_order(names))[0]:
            path = f"{self._paths.lock(key)}/{sibling.name}"
            (found,) = await self._read_all(session, [GetData(path, None)])
            if found is not None and _fence(found) == fence:
                data = replace(NodeData.decode(found[0]), broken=reason)
                if now:
                    return await self._break_now(sibling, path, data)
                return await self._mark(session, path, data, found[1].version)
        return False

    async def raise_fence(self, key: str, fence: int) -> int:
        """Make every later fence of this key higher than this, also those of the claims that wait already."""
        session = await self._session()
        lowest = await self._fences.last_transaction(session)  # before the listing: what it lacks is created later
        first = await self._first_waiter(session, key)
        return await self._fences.raise_above(session, fence, lowest if first is None else min(lowest, first - 1))

    # --- reading

    async def _session(self) -> Session:
        session = self._pool.any_session(READ_TTL)
        await self._calls.connect(session, math.inf)
        return session

    async def _children(self, session: Session, path: str) -> Sequence[str]:
        """The names of all children, as of now: `sync` brings the server up to date first."""
        _, names = await self._read_all(session, [Sync(path), GetChildren(path, None)])
        return names or ()

    async def _read_all(self, session: Session, requests: Sequence[Any]) -> Sequence[Any]:
        """The answers, in few round trips; None for a node that does not exist."""
        answers: list[Any] = []
        for start in range(0, len(requests), BATCH):
            part = requests[start : start + BATCH]
            replies = [session.send(request, signal=self._runtime.signal()) for request in part]
            answers += [await self._answer(session, reply) for reply in replies]
        return answers

    async def _answer(self, session: Session, reply: Reply) -> Any:
        try:
            await self._calls.finished(session, reply, math.inf)
            return None if isinstance(reply.error, NoNodeError) else await self._calls.answer(session, reply, math.inf)
        except OutcomeUnknown as error:  # a read changes nothing
            raise BackendUnavailable(str(error), backend=self._calls.label) from None

    async def _state(self, session: Session, key: str, names: Sequence[str]) -> LockState | None:
        siblings = _in_order(names)
        parent = self._paths.lock(key)
        found = await self._read_all(session, [GetData(f"{parent}/{sibling.name}", None) for sibling in siblings])
        present = {sibling.name: node for sibling, node in zip(siblings, found, strict=True) if node is not None}
        siblings = [sibling for sibling in siblings if sibling.name in present]
        if not siblings:
            return None
        holders, waiters = split(siblings)
        return LockState(
            key,
            siblings[0].mode,
            siblings[0].capacity,
            tuple(_holding(present[sibling.name]) for sibling in holders),
            tuple(NodeData.decode(present[sibling.name][0]).holder for sibling in waiters),
        )

    async def _first_waiter(self, session: Session, key: str) -> int | None:
        """The transaction number of the first waiter; all behind it have higher ones. None without waiters."""
        parent = self._paths.lock(key)
        for waiter in split(_in_order(await self._children(session, parent)))[1]:
            (stat,) = await self._read_all(session, [Exists(f"{parent}/{waiter.name}", None)])
            if stat is not None:
                return int(stat.czxid)
        return None

    # --- breaking

    async def _mark(self, session: Session, path: str, data: NodeData, version: int) -> bool:
        """Write the reason into the node: its holder reads it with the next renewal, and the node ends with its ttl."""
        reply = session.send(SetData(path, data.encode(), version), confirms=True, signal=self._runtime.signal())
        await self._calls.finished(session, reply, math.inf)
        if isinstance(reply.error, (NoNodeError, BadVersionError)):
            return False
        if reply.error is not None:
            raise self._calls.translated(reply.error)
        return True

    async def _break_now(self, sibling: Sibling, path: str, data: NodeData) -> bool:
        """Delete the node, and leave a break note beside it for as long as its holder may look for it."""
        session = self._pool.session_for(data.timeout * VALID_PART or READ_TTL, path)
        await self._calls.connect(session, math.inf)
        prefix = f"{path.rpartition('/')[0]}/{BREAK_NOTE}-{sibling.id}-"
        creation = Create2(prefix, data.encode(), self._options.acl, EPHEMERAL_SEQUENTIAL)
        reply = session.send(creation, confirms=True, signal=self._runtime.signal())
        note, _ = await self._calls.answer(session, reply, math.inf)
        session.break_notes[note] = until = self._runtime.now() + session.validity.timeout
        session.reserved.pop(path, None)
        session.expires_at(until)
        reply = session.send(Delete(path, -1), confirms=True, signal=self._runtime.signal())
        await self._calls.finished(session, reply, math.inf)
        if isinstance(reply.error, NoNodeError):
            return False
        if reply.error is not None:
            raise self._calls.translated(reply.error)
        return True


def _in_order(names: Sequence[str]) -> list[Sibling]:
    siblings = [sibling for sibling in map(parse_node, names) if sibling.letter != BREAK_NOTE]
    return sorted(siblings, key=lambda sibling: sibling.sequence)


def _fence(node: Any) -> int:
    data, stat = node
    return int(NodeData.decode(data).floor + stat.czxid)


def _holding(node: Any) -> Holding:
    encoded, stat = node
    data = NodeData.decode(encoded)
    since = stat.mtime if data.granted and data.broken is None else stat.ctime
    held_for = max(0.0, time.time() - since / 1000)
    return Holding(data.holder, _fence(node), held_for, data.timeout, data.broken)
