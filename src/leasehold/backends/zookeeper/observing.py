"""What operators ask: who holds, who waits, break this one, raise the fences.

Everything is read from the tree; nothing depends on which client made it. A session's time runs on the ensemble, which
does not tell it, so `expires_in` is the whole session timeout: how long the node stays if its holder vanishes now.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import BadVersionError, NoNodeError
from kazoo.protocol.serialization import Create2, Delete, Exists, GetChildren, GetData, SetData, Sync

from leasehold.backends.zookeeper.belief import BELIEVED
from leasehold.backends.zookeeper.floor import Floor
from leasehold.backends.zookeeper.line import split
from leasehold.backends.zookeeper.nodes import BROKEN, Facts, Sibling, key_of, parse_node
from leasehold.errors import BackendUnavailable, OutcomeUnknown
from leasehold.values import Holding, LockState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.backends.zookeeper.asking import Asker
    from leasehold.backends.zookeeper.nodes import Paths
    from leasehold.backends.zookeeper.pool import Pool
    from leasehold.backends.zookeeper.session import Session
    from leasehold.backends.zookeeper.settings import Settings
    from leasehold.backends.zookeeper.wire import Reply
    from leasehold.spi import Runtime

__all__ = ["Observer"]

QUESTION_TTL = 10.0  # of a session that is opened only to ask
BATCH = 100  # questions that are under way at the same time
EPHEMERAL_SEQUENTIAL = 3


class Observer:
    """Answers operators."""

    def __init__(self, settings: Settings, pool: Pool, *, paths: Paths, asker: Asker, runtime: Runtime) -> None:
        self._settings = settings
        self._paths = paths
        self._pool = pool
        self._floor = Floor(settings, paths, runtime, asker)
        self._asker = asker
        self._runtime = runtime

    async def inspect(self, key: str) -> LockState | None:
        """Who holds and who waits."""
        session = await self._session()
        names = await self._children(session, self._paths.lock(key))
        return await self._state(session, key, names)

    async def states(self, prefix: str) -> Sequence[LockState]:
        """All locks in use whose key starts like this."""
        session = await self._session()
        children = await self._children(session, self._paths.locks)
        keys = sorted(key for key in map(key_of, children) if key.startswith(prefix))
        lists = await self._ask_all(session, [GetChildren(self._paths.lock(key), None) for key in keys])
        states = [await self._state(session, key, names or ()) for key, names in zip(keys, lists, strict=True)]
        return [state for state in states if state is not None]

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        """End the grant with this fence."""
        session = await self._session()
        names = await self._children(session, self._paths.lock(key))
        for sibling in split(_in_order(names))[0]:
            path = f"{self._paths.lock(key)}/{sibling.name}"
            (found,) = await self._ask_all(session, [GetData(path, None)])
            if found is not None and _fence(found) == fence:
                facts = replace(Facts.decode(found[0]), broken=reason)
                if now:
                    return await self._break_now(sibling, path, facts)
                return await self._mark(session, path, facts, found[1].version)
        return False

    async def raise_fence(self, key: str, fence: int) -> int:
        """Make every later fence of this key higher than this, also for those who wait already."""
        session = await self._session()
        lowest = await self._floor.seen(session)  # before the listing: whoever is not in that comes later
        first = await self._first_waiter(session, key)
        return await self._floor.raise_above(session, fence, lowest if first is None else min(lowest, first - 1))

    # --- reading

    async def _session(self) -> Session:
        session = self._pool.any_session(QUESTION_TTL)
        if not await self._asker.connected(session, math.inf):
            raise BackendUnavailable(f"{self._asker.label} ended the session; ask again", backend=self._asker.label)
        return session

    async def _children(self, session: Session, path: str) -> Sequence[str]:
        """The names of all children, after everything that was answered before to anybody."""
        _, names = await self._ask_all(session, [Sync(path), GetChildren(path, None)])
        return names or ()

    async def _ask_all(self, session: Session, requests: Sequence[Any]) -> list[Any]:
        """The answers, all asked at once; None for a node that is not there."""
        answers: list[Any] = []
        for start in range(0, len(requests), BATCH):
            part = requests[start : start + BATCH]
            replies = [session.send(request, signal=self._runtime.signal()) for request in part]
            answers += [await self._answer(session, reply) for reply in replies]
        return answers

    async def _answer(self, session: Session, reply: Reply) -> Any:
        try:
            await self._asker.finished(session, reply, math.inf)
            return None if isinstance(reply.error, NoNodeError) else await self._asker.answer(session, reply, math.inf)
        except OutcomeUnknown as error:  # a question changes nothing
            raise BackendUnavailable(str(error), backend=self._asker.label) from None

    async def _state(self, session: Session, key: str, names: Sequence[str]) -> LockState | None:
        siblings = _in_order(names)
        parent = self._paths.lock(key)
        found = await self._ask_all(session, [GetData(f"{parent}/{sibling.name}", None) for sibling in siblings])
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
            tuple(Facts.decode(present[sibling.name][0]).holder for sibling in waiters),
        )

    async def _first_waiter(self, session: Session, key: str) -> int | None:
        """The transaction number of the first in line; all behind it have higher ones. None if nobody waits."""
        parent = self._paths.lock(key)
        for waiter in split(_in_order(await self._children(session, parent)))[1]:
            (stat,) = await self._ask_all(session, [Exists(f"{parent}/{waiter.name}", None)])
            if stat is not None:
                return int(stat.czxid)
        return None

    # --- breaking

    async def _mark(self, session: Session, path: str, facts: Facts, version: int) -> bool:
        """Write the reason into the node: its holder reads it with the next renewal, and goes when its ttl is over."""
        reply = session.send(SetData(path, facts.encode(), version), proves=True, signal=self._runtime.signal())
        await self._asker.finished(session, reply, math.inf)
        if isinstance(reply.error, (NoNodeError, BadVersionError)):
            return False
        if reply.error is not None:
            raise self._asker.translated(reply.error)
        return True

    async def _break_now(self, sibling: Sibling, path: str, facts: Facts) -> bool:
        """Delete the node, and leave a note beside it for as long as its holder may look for it."""
        session = self._pool.session_for(facts.timeout * BELIEVED or QUESTION_TTL, path)
        if not await self._asker.connected(session, math.inf):
            raise BackendUnavailable(f"{self._asker.label} ended the session; ask again", backend=self._asker.label)
        prefix = f"{path.rpartition('/')[0]}/{BROKEN}-{sibling.id}-"
        note = Create2(prefix, facts.encode(), self._settings.acl, EPHEMERAL_SEQUENTIAL)
        made = session.send(note, proves=True, signal=self._runtime.signal())
        noted, _ = await self._asker.answer(session, made, math.inf)
        session.keepsakes[noted] = until = self._runtime.now() + session.belief.timeout
        session.promised.pop(path, None)
        session.expires_at(until)
        reply = session.send(Delete(path, -1), proves=True, signal=self._runtime.signal())
        await self._asker.finished(session, reply, math.inf)
        if isinstance(reply.error, NoNodeError):
            return False
        if reply.error is not None:
            raise self._asker.translated(reply.error)
        return True


def _in_order(names: Sequence[str]) -> list[Sibling]:
    siblings = [sibling for sibling in map(parse_node, names) if sibling.letter != BROKEN]
    return sorted(siblings, key=lambda sibling: sibling.sequence)


def _fence(node: Any) -> int:
    data, stat = node
    return int(Facts.decode(data).floor + stat.czxid)


def _holding(node: Any) -> Holding:
    data, stat = node
    facts = Facts.decode(data)
    since = stat.mtime if facts.granted and facts.broken is None else stat.ctime
    held_for = max(0.0, time.time() - since / 1000)
    return Holding(facts.holder, _fence(node), held_for, facts.timeout, facts.broken)
