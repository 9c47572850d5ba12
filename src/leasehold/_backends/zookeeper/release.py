"""The end of a claim: released, withdrawn or broken. Its node is deleted, and a deletion in doubt is repeated."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import BadVersionError, NoNodeError
from kazoo.protocol.serialization import Delete, GetChildren, GetData

from leasehold._backends.zookeeper.claim_node import ClaimState
from leasehold._backends.zookeeper.keys import BREAK_NOTE, NodeData
from leasehold.errors import BackendError, BackendUnavailable, OutcomeUnknown
from leasehold.values import Loss, LossReason

if TYPE_CHECKING:
    from leasehold._backends.zookeeper.calls import Calls
    from leasehold._backends.zookeeper.claim_node import ClaimNode, Registry
    from leasehold._backends.zookeeper.session import Session
    from leasehold.spi import Runtime
    from leasehold.values import Claim, Grant

__all__ = ["Releaser"]


class Releaser:
    """Releases and withdraws for one client."""

    def __init__(self, runtime: Runtime, registry: Registry, calls: Calls) -> None:
        self._runtime = runtime
        self._registry = registry
        self._calls = calls

    async def release(self, grant: Grant, until: float) -> bool | Loss:
        """Delete the node of a grant; False if it was gone before, and the break if an operator had broken it."""
        node = self._registry.nodes.get(grant.claim.owner)
        if node is None or node.fence != grant.fence:
            return False
        if node.state is not ClaimState.PRESENT or not await self._calls.connected(node.session, until):
            reason = node.broken or await self.break_note(node, until)
            node.session.forget(node)
            return False if reason is None else Loss(LossReason.BROKEN, reason)
        try:
            return await self._free(node, until)
        except OutcomeUnknown:
            with suppress(BackendUnavailable):  # without a connection the outcome stays unknown
                if not await self._calls.connected(node.session, until):
                    return False  # the session is over, and ended before the deletion
            raise

    async def withdraw(self, claim: Claim, until: float, *, doubt: bool) -> None:
        """Delete the node of a claim; with a doubt, refuse a late copy of its request for a ttl."""
        now = self._runtime.now()
        if doubt:
            self._registry.withdraw(claim.owner, now + claim.ttl, now)
        node = self._registry.nodes.get(claim.owner)
        if node is not None:
            await self.leave(node, until)

    async def leave(self, node: ClaimNode, until: float) -> None:
        """Leave the queue. If the deletion of the node is not confirmed, the session worker repeats it."""
        session = node.session
        session.give_up(node)
        if node.is_at(ClaimState.NEW) or node.is_at(ClaimState.GONE) or session.is_over():
            node.mark_gone()
            return
        node.gone = self._runtime.signal()
        session.wake()
        if not node.is_at(ClaimState.GONE):
            await self._calls.wait(node.gone, self._calls.deadline(session, until))
        if not node.is_at(ClaimState.GONE):
            raise OutcomeUnknown(
                "the deletion of a claim's node was not confirmed in time; it is repeated, and ends with its session",
                backend=self._calls.label,
            )

    async def break_note(self, node: ClaimNode, until: float) -> str | None:
        """The reason that an operator left when deleting the node of a grant; None without such a note."""
        if node.session.is_over():
            return None
        prefix = f"{BREAK_NOTE}-{node.id}-"
        names = await self._read(node.session, GetChildren(node.parent, None), until)
        for name in names or ():
            if name.startswith(prefix):
                found = await self._read(node.session, GetData(f"{node.parent}/{name}", None), until)
                return None if found is None else NodeData.decode(found[0]).broken
        return None

    async def read_own(self, node: ClaimNode, until: float) -> None:
        """Read the claim's own node, after another client has written into it."""
        session = node.session
        reply = session.send(GetData(node.path, None), signal=self._runtime.signal())
        await self._calls.finished(session, reply, until)
        if reply.error is None:
            data, stat = reply.value
            node.version, node.broken = stat.version, NodeData.decode(data).broken
        elif isinstance(reply.error, NoNodeError):
            node.mark_gone()
        else:
            raise self._calls.translated(reply.error)

    async def _free(self, node: ClaimNode, until: float) -> bool | Loss:
        session = node.session
        node.deleting = True  # so that the session worker leaves it to us
        session.give_up(node)
        deleted = await self._delete(node, node.version, until)
        if not deleted and not node.is_at(ClaimState.GONE):
            await self.read_own(node, until)  # another client has written into it
            deleted = await self._delete(node, -1, until)
        if not deleted and node.broken is None:
            node.broken = await self.break_note(node, until)
        return deleted if node.broken is None else Loss(LossReason.BROKEN, node.broken)

    async def _delete(self, node: ClaimNode, version: int, until: float) -> bool:
        node.deleting = True
        try:
            return await self._send_deletion(node, version, until)
        except BackendUnavailable:
            node.deleting = False
            raise

    async def _send_deletion(self, node: ClaimNode, version: int, until: float) -> bool:
        session = node.session
        request = Delete(node.path, version)
        reply = session.send(request, confirms=True, then=node.on_deleted, signal=self._runtime.signal())
        await self._calls.finished(session, reply, until)
        if reply.error is None:
            return True
        if isinstance(reply.error, (NoNodeError, BadVersionError)):
            return False
        raise self._calls.translated(reply.error)

    async def _read(self, session: Session, request: Any, until: float) -> Any:
        """The answer to a read that is only a help; None if there is none."""
        try:
            reply = session.send(request, signal=self._runtime.signal())
            await self._calls.finished(session, reply, until)
        except BackendError:
            return None
        if reply.error is not None and not isinstance(reply.error, NoNodeError):
            return None
        return reply.value
