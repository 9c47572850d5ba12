"""From a claim to a grant: create a node, list the queue, watch those ahead, be granted when they are gone.

A claim that is alone is granted after one round trip: the listing is sent right behind the creation, and includes the
node. One that comes right behind a claim of the same session needs no listing (`ClaimNode.follow`). A waiter
costs nothing while it waits; it is notified by the node ahead, and is then granted without a further request, because
the last probe still confirms its session. After a lost answer a node is adopted only if it belongs to this very
session: a node of an older session is about to vanish, and is deleted instead.

The fence is the stored floor plus the transaction number of the creation, which rises with every write of the ensemble.
The floor is watched on the same connection, so the session knows the one that was in force at the claim's turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.protocol.serialization import Create2, Delete, Exists, GetChildren, GetData, SetData, Sync

from leasehold._backends.zookeeper.claim_node import ClaimNode, ClaimState
from leasehold._backends.zookeeper.keys import BREAK_NOTE, NodeData, parse_node
from leasehold._backends.zookeeper.wire import EPHEMERAL_SEQUENTIAL, CreateContainer
from leasehold.errors import BackendRejected, BackendUnavailable, OutcomeUnknown
from leasehold.kit.rules import check_kind
from leasehold.spi import Place
from leasehold.values import MAX_FENCE, Grant, Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._backends.zookeeper.calls import Calls
    from leasehold._backends.zookeeper.claim_node import Registry
    from leasehold._backends.zookeeper.fences import Fences
    from leasehold._backends.zookeeper.keys import Paths
    from leasehold._backends.zookeeper.options import Options
    from leasehold._backends.zookeeper.pool import Pool
    from leasehold._backends.zookeeper.release import Releaser
    from leasehold._backends.zookeeper.session import Session
    from leasehold._backends.zookeeper.wire import Reply
    from leasehold.spi import Runtime
    from leasehold.values import Claim

__all__ = ["Acquirer"]

RECHECK = 1 / 3  # of the ttl: watches are reliable, so a waiter rarely has to look by itself
PARENT_TRIES = 5  # the container of an idle lock may be removed just before a node is created in it


class Acquirer:
    """Acquires for one client."""

    def __init__(
        self,
        options: Options,
        paths: Paths,
        *,
        runtime: Runtime,
        registry: Registry,
        calls: Calls,
        pool: Pool,
        fences: Fences,
        releaser: Releaser,
    ) -> None:
        self._options = options
        self._paths = paths
        self._runtime = runtime
        self._registry = registry
        self._calls = calls
        self._pool = pool
        self._fences = fences
        self._releaser = releaser

    async def join(self, claim: Claim, until: float) -> Grant | Place | Refusal:
        """Enter the queue, once, however often the claim is repeated."""
        started = self._runtime.now()
        if self._registry.is_withdrawn(claim.owner, started):
            return Refusal(claim.key)
        node = self._registry.nodes.get(claim.owner)
        if node is not None and node.fence is not None:
            return await self._repeat(node, started, until)
        if node is not None and node.session.is_over():  # its node is gone with the session
            node.session.forget(node)
            node = None
        if node is None:
            node = await self._enter(claim, until)
        elif not node.session.extend(node, started + claim.ttl):
            return Refusal(claim.key)  # it was given up, and its node is being deleted
        try:
            if node.state is not ClaimState.PRESENT:
                await self._settle(node, until)
            return await self._advance(node, started, until)
        except (BackendUnavailable, OutcomeUnknown) as error:
            if node.may_exist:
                raise OutcomeUnknown(str(error), backend=self._calls.label) from None
            if node.is_at(ClaimState.NEW):  # only reads were sent
                raise BackendUnavailable(str(error), backend=self._calls.label) from None
            raise

    async def turn(self, claim: Claim, until: float) -> Grant | Place | Refusal:
        """Grant a waiter if it is its turn."""
        now = self._runtime.now()
        node = self._registry.nodes.get(claim.owner)
        if node is None or node.session.is_over():
            return Refusal(claim.key)
        if node.fence is not None:
            return await self._repeat(node, now, until)
        if not node.session.extend(node, now + claim.ttl):
            return Refusal(claim.key)
        await self._calls.connect(node.session, until)
        if not node.notifications:
            await self._probe(node.session, until)  # answered behind every notification of what happened before
        return await self._advance(node, now, until)

    async def _enter(self, claim: Claim, until: float) -> ClaimNode:
        """Add the claim to a session that is connected."""
        session = self._pool.session_for(claim.ttl, claim.owner)
        try:
            await self._calls.connect(session, until)
            parent = self._paths.lock(claim.key)
            node = ClaimNode(claim, session, parent, self._runtime.signal(), self._runtime.now())
            session.admit(node)
        finally:
            session.reserved.pop(claim.owner, None)
        return node

    async def _repeat(self, node: ClaimNode, started: float, until: float) -> Grant | Refusal:
        """The same claim again, because its answer was lost: the same grant with a new expiry, unless it was broken."""
        if node.broken is not None or node.state is not ClaimState.PRESENT:
            return Refusal(node.claim.key)
        await self._calls.connect(node.session, until)
        await self._probe(node.session, until)
        await self._releaser.read_own(node, until)
        broken: str | None = node.broken
        return Refusal(node.claim.key) if broken is not None else await self._confirm(node, started, until)

    # --- creating the node

    async def _settle(self, node: ClaimNode, until: float) -> None:
        """Learn whether the node was created, and create it if it was not."""
        if not node.session.is_connected():
            await self._calls.connect(node.session, until)
        if node.state is ClaimState.SENT:
            await self._probe(node.session, until)  # answered behind the creation
        if node.state is ClaimState.DOUBT and not await self._adopt(node, until):
            node.state = ClaimState.NEW
        if node.state is ClaimState.NEW:
            await self._create(node, until)

    async def _create(self, node: ClaimNode, until: float) -> None:
        """Create the node and list the queue."""
        session = node.session
        for _ in range(PARENT_TRIES):
            floor = session.fence_floor
            if floor is None:
                floor = await self._fences.known(session, until)
            last = session.last_before(node)
            reply = self._send_creation(node, floor, last)
            await self._calls.finished(session, reply, until)
            if not isinstance(node.failure, NoNodeError):
                break
            await self._create_parents(session, node.parent, until)
        if node.failure is not None:
            if node.state is ClaimState.GONE:
                session.forget(node)
            raise self._calls.translated(node.failure)
        if last is not None:
            if node.follow(last, reply):
                await self._take_place(node, (), until)
                return
            reply = session.send(GetChildren(node.parent, None), signal=self._runtime.signal())
            await self._calls.finished(session, reply, until)
        if reply.error is not None:
            raise self._calls.translated(reply.error)
        await self._take_place(node, reply.value, until)

    def _send_creation(self, node: ClaimNode, floor: int, last: ClaimNode | None) -> Reply:
        """The creation, and right behind it the listing, which includes the node; or a look at the one before it."""
        session, parent = node.session, node.parent
        data = node.data(floor)
        node.state, node.failure = ClaimState.SENT, None
        creation = Create2(f"{parent}/{node.prefix}", data, self._options.acl, EPHEMERAL_SEQUENTIAL)
        try:
            session.send(creation, confirms=True, then=node.on_created)
        except BackendUnavailable:  # it was not sent
            node.state = ClaimState.NEW
            raise
        signal = self._runtime.signal()
        if last is None:
            return session.send(GetChildren(parent, None), signal=signal)
        return session.send(Exists(last.path, None), signal=signal)

    async def _take_place(self, node: ClaimNode, names: Sequence[str], until: float) -> None:
        """Find the node's place in a listing, if it needs one, or withdraw it where it does not belong."""
        session = node.session
        try:
            siblings = [sibling for sibling in map(parse_node, names) if sibling.letter != BREAK_NOTE]
            for stale in siblings:  # of an older session, for the same claim: no grant is counted on it
                if stale.id == node.id and stale.name != node.name:
                    session.send(Delete(f"{node.parent}/{stale.name}", -1), confirms=True)
            if siblings:
                node.listed(siblings)
            if parse_node(node.name).is_used_up:
                raise BackendRejected(
                    "the ensemble runs out of sequence numbers for this lock; release it everywhere once, and its "
                    "numbers begin again"
                )
            for sibling in {s.letter: s for s in (node.queue.ahead if siblings else node.queue.ahead[-1:])}.values():
                check_kind(node.claim, sibling.mode, sibling.capacity, self._calls.label)
        except BackendUnavailable:
            raise
        except Exception:
            await self._releaser.leave(node, until)
            raise

    async def _adopt(self, node: ClaimNode, until: float) -> bool:
        """After a lost answer: whether the node exists, and was created by this very session."""
        session = node.session
        session.send(Sync(node.parent), confirms=True)  # no request of the old connection is done after this
        listing = session.send(GetChildren(node.parent, None), signal=self._runtime.signal())
        await self._calls.finished(session, listing, until)
        for name in [name for name in listing.value or () if name.startswith(node.prefix)]:
            found = session.send(Exists(f"{node.parent}/{name}", None), signal=self._runtime.signal())
            stat = await self._calls.answer(session, found, until)
            if stat is not None and stat.ephemeralOwner == session.id:
                node.adopt(name, stat.czxid, stat.version)
                await self._take_place(node, listing.value, until)
                return True
        if listing.error is not None and not isinstance(listing.error, NoNodeError):
            raise self._calls.translated(listing.error)
        return False

    async def _create_parents(self, session: Session, parent: str, until: float) -> None:
        """The container of this lock; and the root, the first time ever."""
        container = CreateContainer(parent, self._options.acl)
        if await self._create_parent(session, container, until):
            return
        path = ""
        for part in self._paths.locks.split("/")[1:]:
            path += f"/{part}"
            await self._create_parent(session, Create2(path, b"", self._options.acl, 0), until)
        await self._create_parent(session, container, until)

    async def _create_parent(self, session: Session, creation: Any, until: float) -> bool:
        """False if its own parent is missing."""
        reply = session.send(creation, confirms=True, signal=self._runtime.signal())
        await self._calls.finished(session, reply, until)
        if reply.error is None or isinstance(reply.error, NodeExistsError):
            return True
        if isinstance(reply.error, NoNodeError):
            return False
        raise self._calls.translated(reply.error)

    # --- waiting

    async def _advance(self, node: ClaimNode, started: float, until: float) -> Grant | Place | Refusal:
        """Grant the claim if it is its turn; else watch the nodes that decide it."""
        queue, claim = node.queue, node.claim
        while node.state is ClaimState.PRESENT:
            if node.notifications:
                node.apply_notifications()
            if queue.is_stale:
                await self._list(node, until)
            elif queue.is_turn:
                return await self._grant(node, started, until)
            elif queue.to_watch() or not node.is_watched:
                node.has_waited = True
                await self._watch(node, until)
            else:
                return Place(claim, node.signal, claim.ttl * RECHECK, queue.waiters_ahead, node.holder)
        return Refusal(claim.key)

    async def _list(self, node: ClaimNode, until: float) -> None:
        """List the queue again, after a notification may have been missed."""
        session = node.session
        listing = session.send(GetChildren(node.parent, None), signal=self._runtime.signal())
        await self._calls.finished(session, listing, until)
        if listing.error is not None and not isinstance(listing.error, NoNodeError):
            raise self._calls.translated(listing.error)
        siblings = [parse_node(name) for name in listing.value or ()]
        if not any(sibling.name == node.name for sibling in siblings):
            node.mark_gone()
            return
        node.listed(s for s in siblings if s.letter != BREAK_NOTE)

    async def _watch(self, node: ClaimNode, until: float) -> None:
        """Watch its own node and those that decide its turn, as far as they are not; all in one round trip."""
        session, queue, parent = node.session, node.queue, node.parent
        watched = queue.to_watch()
        requests = [(name, GetData(f"{parent}/{name}", session.on_event)) for name in watched]
        first = queue.first
        if first is not None and first != node.holder_name and first not in watched:
            requests.append((first, GetData(f"{parent}/{first}", None)))
        if not node.is_watched:
            requests.append((node.name, Exists(node.path, session.on_event)))
        signal, replies = self._runtime.signal(), {}
        for name, request in requests:
            then = session.watcher(f"{parent}/{name}", node) if request.watcher is not None else None
            is_last = request is requests[-1][1]
            replies[name] = session.send(request, then=then, signal=signal if is_last else None)
        await self._calls.finished(session, reply := replies[requests[-1][0]], until)
        own = replies.pop(node.name, None)
        if own is not None and (await self._calls.answer(session, reply, until)) is None:
            node.mark_gone()
        for name, reply in replies.items():
            self._read_ahead(node, name, reply, is_watched=name in watched)

    def _read_ahead(self, node: ClaimNode, name: str, reply: Any, *, is_watched: bool) -> None:
        """The data of a node ahead."""
        if isinstance(reply.error, NoNodeError):
            if is_watched:
                node.gone_ahead(name)
            else:
                node.queue.remove(name)  # it was read for its data only: those that are watched decide
            return
        if reply.error is not None:
            raise self._calls.translated(reply.error)
        data = NodeData.decode(reply.value[0])
        if is_watched:
            node.queue.watched.add(name)
        if data.granted:
            node.queue.granted(name)
        if node.queue.first == name:
            node.holder, node.holder_name = data.holder, name

    # --- the grant

    async def _grant(self, node: ClaimNode, started: float, until: float) -> Grant | Refusal:
        """It is this claim's turn: fix its fence, and write it down for the waiter behind."""
        session = node.session
        floor = session.fence_floor
        if floor is None:
            floor = await self._fences.known(session, until)
        fence = floor + node.czxid
        if fence > MAX_FENCE:
            await self._releaser.leave(node, until)
            raise BackendRejected("the fences of this store have reached their end; use another root")
        node.fence, node.predecessor = fence, None
        if node.has_waited or floor != node.floor:
            await self._write_grant(node, floor, until)
        return await self._confirm(node, started, until)

    async def _write_grant(self, node: ClaimNode, floor: int, until: float) -> None:
        """Write into the node that it is granted. The answer is awaited only if the floor of its fence has changed."""
        session = node.session
        moved = floor != node.floor
        data = node.data(floor, granted=True)
        signal = self._runtime.signal() if moved else None
        write = SetData(node.path, data, node.version)
        node.version += 1
        reply = session.send(write, confirms=True, then=node.on_written, signal=signal)
        if moved:
            await self._calls.finished(session, reply, until)

    async def _confirm(self, node: ClaimNode, started: float, until: float) -> Grant | Refusal:
        """The grant, with the time for which it is valid."""
        session = node.session
        validity = session.validity
        if validity.until < started + validity.ttl / 2:
            await self._probe(session, until)
        if node.state is not ClaimState.PRESENT or not session.extend(node, started + validity.ttl):
            return Refusal(node.claim.key)
        if node.expires < session.next_expiry:
            session.expires_at(node.expires)
        since = validity.until - validity.ttl
        assert node.fence is not None  # noqa: S101 - for the type checker
        return Grant(node.claim, node.fence, validity.ttl, None if since >= started else since)

    async def _probe(self, session: Session, until: float) -> None:
        """An answer of the leader."""
        reply = session.send(Sync(self._paths.root), confirms=True, signal=self._runtime.signal())
        await self._calls.answer(session, reply, until)
