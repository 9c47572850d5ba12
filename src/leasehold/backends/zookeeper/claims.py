"""The protocol of a claim: make a node, see who is ahead, watch, be granted, be renewed, go.

A claim that is alone is granted with one round trip: the listing is sent right behind the creation, and sees the node.
A waiter costs nothing while it waits; it is told by the node ahead, and is then granted without asking again, because
its session is believed from the last probe. A node found after a lost answer is adopted only if it belongs to this very
session: one of an older session is about to vanish, and is removed instead.

The fence is the stored floor plus the creation's transaction number, which rises with every write of the ensemble. The
floor is watched on the same connection, so that it is known as it was when the claim's turn came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from kazoo.protocol.serialization import Create2, Delete, Exists, GetChildren, GetData, SetData, Sync

from leasehold.backends.rules import check_kind
from leasehold.backends.zookeeper.floor import Floor
from leasehold.backends.zookeeper.nodes import BROKEN, Facts, node_prefix, parse_node
from leasehold.backends.zookeeper.standing import Stage, Standing
from leasehold.backends.zookeeper.wire import CreateContainer
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable, OutcomeUnknown
from leasehold.spi import Place
from leasehold.values import MAX_FENCE, Grant, Loss, LossReason, Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.backends.zookeeper.asking import Asker
    from leasehold.backends.zookeeper.nodes import Paths
    from leasehold.backends.zookeeper.session import Session
    from leasehold.backends.zookeeper.settings import Settings
    from leasehold.spi import Runtime

__all__ = ["Claims"]

EPHEMERAL_SEQUENTIAL = 3
RECHECK = 1 / 3  # of the ttl: watches are reliable, so a waiter need not ask often
PARENT_TRIES = 5  # the container of an idle lock may be removed just before a claim arrives in it


class Claims:
    """What one client does with its claims."""

    def __init__(self, settings: Settings, paths: Paths, runtime: Runtime, asker: Asker) -> None:
        self._settings = settings
        self._paths = paths
        self._runtime = runtime
        self._asker = asker
        self._floor = Floor(settings, paths, runtime, asker)

    # --- making a node

    async def stand(self, standing: Standing, until: float) -> None:
        """Make the node and see who is ahead."""
        session = standing.session
        for _ in range(PARENT_TRIES):
            listing = self._send(standing, await self._floor.known(session, until))
            await self._asker.finished(session, listing, until)
            if not isinstance(standing.failure, NoNodeError):
                break
            await self._make_parents(session, standing.parent, until)
        if standing.failure is not None:
            if standing.stage is Stage.GONE:
                session.forget(standing)
            raise self._asker.translated(standing.failure)
        if listing.error is not None:
            raise self._asker.translated(listing.error)
        await self._take_place(standing, listing.value, until)

    def _send(self, standing: Standing, floor: int) -> Any:
        """The creation, and right behind it the listing, which sees it."""
        session = standing.session
        data = standing.facts(floor)
        standing.stage, standing.failure = Stage.SENT, None
        node = Create2(standing.prefix, data, self._settings.acl, EPHEMERAL_SEQUENTIAL)
        try:
            session.send(node, proves=True, then=standing.on_created)
        except BackendUnavailable:  # it did not leave
            standing.stage = Stage.NEW
            raise
        return session.send(GetChildren(standing.parent, None), signal=self._runtime.signal())

    async def _take_place(self, standing: Standing, names: Sequence[str], until: float) -> None:
        session = standing.session
        try:
            siblings = [sibling for sibling in map(parse_node, names) if sibling.letter != BROKEN]
            for ghost in siblings:  # of an older session, for the same claim: no holder believes in it
                if ghost.id == standing.id and ghost.name != standing.name:
                    session.send(Delete(f"{standing.parent}/{ghost.name}", -1), proves=True)
            standing.line.see(siblings, standing.sequence)
            if parse_node(standing.name).is_used_up:
                raise BackendRejected("the ensemble runs out of numbers for this lock; let it be idle once")
            for sibling in {sibling.letter: sibling for sibling in standing.line.earlier}.values():
                check_kind(standing.claim, sibling.mode, sibling.capacity, self._asker.label)
        except BackendUnavailable:
            raise
        except Exception:
            await self.leave(standing, until)
            raise

    async def settle(self, standing: Standing, until: float) -> None:
        """Learn what became of a node that may have been made, and make it if it was not."""
        if standing.stage is Stage.SENT:
            await self.probe(standing.session, until)  # answered behind it
        if standing.stage is Stage.DOUBT and not await self.adopt(standing, until):
            standing.stage = Stage.NEW
        if standing.stage is Stage.NEW:
            await self.stand(standing, until)

    async def adopt(self, standing: Standing, until: float) -> bool:
        """After a lost answer: whether the node is there, and made by this very session."""
        session = standing.session
        session.send(Sync(standing.parent), proves=True)  # nothing of the old connection can be done after this
        listing = session.send(GetChildren(standing.parent, None), signal=self._runtime.signal())
        await self._asker.finished(session, listing, until)
        prefix = node_prefix(standing.claim)
        names = [name for name in listing.value or () if name.startswith(prefix)]
        for name in names:
            found = session.send(Exists(f"{standing.parent}/{name}", None), signal=self._runtime.signal())
            stat = await self._asker.answer(session, found, until)
            if stat is not None and stat.ephemeralOwner == session.id:
                standing.adopt(name, stat.czxid, stat.version)
                await self._take_place(standing, listing.value, until)
                return True
        if listing.error is not None and not isinstance(listing.error, NoNodeError):
            raise self._asker.translated(listing.error)
        return False

    async def _make_parents(self, session: Session, parent: str, until: float) -> None:
        """The container of this lock; and the root, the first time ever."""
        container = CreateContainer(parent, self._settings.acl)
        if await self._make(session, container, until):
            return
        path = ""
        for part in self._paths.locks.split("/")[1:]:
            path += f"/{part}"
            await self._make(session, Create2(path, b"", self._settings.acl, 0), until)
        await self._make(session, container, until)

    async def _make(self, session: Session, node: Any, until: float) -> bool:
        """False if its own parent is missing."""
        reply = session.send(node, proves=True, signal=self._runtime.signal())
        await self._asker.finished(session, reply, until)
        if reply.error is None or isinstance(reply.error, NodeExistsError):
            return True
        if isinstance(reply.error, NoNodeError):
            return False
        raise self._asker.translated(reply.error)

    # --- waiting

    async def advance(self, standing: Standing, started: float, until: float) -> Grant | Place | Refusal:
        """Grant the claim if it is its turn; else watch whoever can tell."""
        line = standing.line
        while standing.stage is Stage.STANDING:
            standing.read_news()
            if line.blind:
                await self._look(standing, until)
            elif line.is_mine:
                return await self._grant(standing, started, until)
            elif line.to_watch() or not standing.watches_itself:
                standing.waited = True
                await self._watch(standing, until)
            else:
                return self.place(standing)
        return Refusal(standing.claim.key)

    def place(self, standing: Standing) -> Place:
        """Where it stands."""
        claim, line = standing.claim, standing.line
        return Place(claim, standing.signal, claim.ttl * RECHECK, line.ahead, standing.holder)

    async def _look(self, standing: Standing, until: float) -> None:
        """List the line again, after something was missed."""
        session = standing.session
        listing = session.send(GetChildren(standing.parent, None), signal=self._runtime.signal())
        await self._asker.finished(session, listing, until)
        if listing.error is not None and not isinstance(listing.error, NoNodeError):
            raise self._asker.translated(listing.error)
        siblings = [parse_node(name) for name in listing.value or ()]
        if not any(sibling.name == standing.name for sibling in siblings):
            standing.vanish()
            return
        standing.line.see((s for s in siblings if s.letter != BROKEN), standing.sequence)

    async def _watch(self, standing: Standing, until: float) -> None:
        """Watch its own node and those that can tell; all in one round trip."""
        session, line, parent = standing.session, standing.line, standing.parent
        replies = {}
        watched = line.to_watch()
        for name in watched:
            path = f"{parent}/{name}"
            replies[name] = session.send(GetData(path, session.on_event), then=session.watch(path, standing))
        first = line.first
        if first is not None and first != standing.holder_name and first not in replies:
            replies[first] = session.send(GetData(f"{parent}/{first}", None))
        own = Exists(standing.path, session.on_event)
        last = session.send(own, then=session.watch(standing.path, standing), signal=self._runtime.signal())
        await self._asker.answer(session, last, until)
        if last.value is None:
            standing.vanish()
        for name, reply in replies.items():
            self._seen(standing, name, reply, is_watched=name in watched)

    def _seen(self, standing: Standing, name: str, reply: Any, *, is_watched: bool) -> None:
        """What a node ahead says."""
        if isinstance(reply.error, NoNodeError):
            standing.line.gone(name)
            return
        if reply.error is not None:
            raise self._asker.translated(reply.error)
        facts = Facts.decode(reply.value[0])
        if is_watched:
            standing.line.watched.add(name)
        if facts.granted:
            standing.line.granted(name)
        if standing.line.first == name:
            standing.holder, standing.holder_name = facts.holder, name

    # --- being granted

    async def _grant(self, standing: Standing, started: float, until: float) -> Grant | Refusal:
        """It is this claim's turn. What it is told must hold from now on, and be written down for the next one."""
        session = standing.session
        floor = await self._floor.known(session, until)
        fence = floor + standing.czxid
        if fence > MAX_FENCE:
            await self.leave(standing, until)
            raise BackendRejected("the fences of this store have reached their end; use another root")
        standing.fence = fence
        if standing.waited or floor != standing.floor:
            await self._write_down(standing, floor, until)
        return await self.confirm(standing, started, until)

    async def _write_down(self, standing: Standing, floor: int, until: float) -> None:
        """Say in the node that it is granted. Nobody waits for the answer, except when the fence itself has changed."""
        session = standing.session
        moved = floor != standing.floor
        data = standing.facts(floor, granted=True)
        signal = self._runtime.signal() if moved else None
        note = SetData(standing.path, data, standing.version)
        standing.version += 1
        reply = session.send(note, proves=True, then=standing.on_written, signal=signal)
        if moved:
            await self._asker.finished(session, reply, until)

    async def confirm(self, standing: Standing, started: float, until: float) -> Grant | Refusal:
        """The grant, with the time for which it may be believed."""
        session = standing.session
        belief = session.belief
        if belief.until < started + belief.ttl / 2:
            await self.probe(session, until)
        if standing.stage is not Stage.STANDING or not session.extend(standing, started + belief.ttl):
            return Refusal(standing.claim.key)
        session.expires_at(standing.expires)
        since = belief.until - belief.ttl
        assert standing.fence is not None  # noqa: S101 - for the type checker
        return Grant(standing.claim, standing.fence, belief.ttl, None if since >= started else since)

    async def probe(self, session: Session, until: float) -> None:
        """A sign of life from the leader."""
        reply = session.send(Sync(self._paths.root), proves=True, signal=self._runtime.signal())
        await self._asker.answer(session, reply, until)

    # --- going

    async def leave(self, standing: Standing, until: float) -> None:
        """Take the node away, whatever became of it. If that is not confirmed, the steward goes on trying."""
        session = standing.session
        session.give_up(standing)
        if standing.is_at(Stage.NEW) or standing.is_at(Stage.GONE) or session.is_over():
            standing.vanish()
            return
        standing.over = self._runtime.signal()
        session.wake()
        if not standing.is_at(Stage.GONE):
            await self._asker.raised(session, standing.over, until)
        if not standing.is_at(Stage.GONE):
            raise OutcomeUnknown("a claim could not be withdrawn; its session will end it", backend=self._asker.label)

    async def free(self, standing: Standing, until: float) -> bool | Loss:
        """Delete the node of a grant: False if it was gone before, and the break if an operator had broken it."""
        session = standing.session
        standing.deleting = True  # so that the steward leaves it to us
        session.give_up(standing)
        deleted = await self._delete(standing, standing.version, until)
        if not deleted and not standing.is_at(Stage.GONE):
            await self.read_own(standing, until)  # another client has written in it
            deleted = await self._delete(standing, -1, until)
        if not deleted and standing.broken is None:
            standing.broken = await self.break_note(standing, until)
        return deleted if standing.broken is None else Loss(LossReason.BROKEN, standing.broken)

    async def break_note(self, standing: Standing, until: float) -> str | None:
        """Why the node was deleted, as the operator who did so has written beside it; None without such a note."""
        if standing.session.is_over():
            return None
        prefix = f"{BROKEN}-{standing.id}-"
        names = await self._ask(standing.session, GetChildren(standing.parent, None), until)
        for name in names or ():
            if name.startswith(prefix):
                found = await self._ask(standing.session, GetData(f"{standing.parent}/{name}", None), until)
                return None if found is None else Facts.decode(found[0]).broken
        return None

    async def _ask(self, session: Session, request: Any, until: float) -> Any:
        """The answer to a question that may come too late; None if it does."""
        try:
            reply = session.send(request, signal=self._runtime.signal())
            await self._asker.finished(session, reply, until)
        except BackendError:
            return None
        if reply.error is not None and not isinstance(reply.error, NoNodeError):
            return None
        return reply.value

    async def _delete(self, standing: Standing, version: int, until: float) -> bool:
        standing.deleting = True
        try:
            return await self._send_delete(standing, version, until)
        except BackendUnavailable:
            standing.deleting = False
            raise

    async def _send_delete(self, standing: Standing, version: int, until: float) -> bool:
        session = standing.session
        request = Delete(standing.path, version)
        reply = session.send(request, proves=True, then=standing.on_deleted, signal=self._runtime.signal())
        await self._asker.finished(session, reply, until)
        if reply.error is None:
            return True
        if isinstance(reply.error, (NoNodeError, BadVersionError)):
            return False
        raise self._asker.translated(reply.error)

    async def read_own(self, standing: Standing, until: float) -> None:
        """What is written in the claim's own node by now."""
        session = standing.session
        reply = session.send(GetData(standing.path, None), signal=self._runtime.signal())
        await self._asker.finished(session, reply, until)
        if reply.error is None:
            data, stat = reply.value
            standing.version, standing.broken = stat.version, Facts.decode(data).broken
        elif not isinstance(reply.error, NoNodeError):
            raise self._asker.translated(reply.error)
