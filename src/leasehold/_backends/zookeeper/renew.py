"""Renewal: one probe for each session, however many grants it has, and a look at the nodes that are not watched yet.

A node that is watched needs no look: its deletion would have been reported on the connection before the probe's answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kazoo.protocol.serialization import Exists, Sync

from leasehold._backends.zookeeper.calls import LONGEST_ANSWER_TIMEOUT
from leasehold._backends.zookeeper.claim_node import ClaimState
from leasehold._backends.zookeeper.session import UNCONFIRMED
from leasehold.errors import BackendError, BackendUnavailable
from leasehold.values import Grant, Loss, LossReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._backends.zookeeper.calls import Calls
    from leasehold._backends.zookeeper.claim_node import ClaimNode, Registry
    from leasehold._backends.zookeeper.release import Releaser
    from leasehold._backends.zookeeper.session import Session
    from leasehold._backends.zookeeper.wire import Reply
    from leasehold.spi import Runtime

__all__ = ["Renewer"]

_TAKEN = Loss(LossReason.TAKEN, "its ZooKeeper node is gone")


class Renewer:
    """Renews the grants of one client."""

    def __init__(self, runtime: Runtime, registry: Registry, calls: Calls, releaser: Releaser) -> None:
        self._runtime = runtime
        self._registry = registry
        self._calls = calls
        self._releaser = releaser

    async def renew(self, grants: Sequence[Grant], until: float) -> list[Grant | Loss]:
        """An answer for each, in order. A grant whose session was not confirmed stays valid for as long as before."""
        started = self._runtime.now()
        until = min(until, started + LONGEST_ANSWER_TIMEOUT)  # of all sessions together
        nodes = [self._find(grant) for grant in grants]
        by_session: dict[Session, list[ClaimNode]] = {}
        for node in nodes:
            if node is not None:
                by_session.setdefault(node.session, []).append(node)
        probes = {session: self._send(session, members) for session, members in by_session.items()}
        failures = [await self._confirmed(session, probe, until) for session, probe in probes.items()]
        if failures and all(failures):
            raise failures[0]  # type: ignore[misc]  # all of them are errors
        return [await self._answer(grant, node, started, until) for grant, node in zip(grants, nodes, strict=True)]

    def _find(self, grant: Grant) -> ClaimNode | None:
        node = self._registry.nodes.get(grant.claim.owner)
        return node if node is not None and node.fence == grant.fence else None

    def _send(self, session: Session, nodes: list[ClaimNode]) -> dict[ClaimNode | None, Reply] | BackendError:
        """A look at the nodes that are not watched yet, and behind it the probe."""
        if session.is_over():
            return {}
        try:
            replies: dict[ClaimNode | None, Reply] = {}
            for node in nodes:
                if node.state is ClaimState.PRESENT and not node.is_watched:
                    look = Exists(node.path, session.on_event)
                    replies[node] = session.send(look, then=session.watcher(node.path, node))
            probe = Sync(nodes[0].parent)
            replies[None] = session.send(probe, confirms=True, signal=self._runtime.signal())
        except BackendUnavailable as error:
            return error
        return replies

    async def _confirmed(
        self, session: Session, replies: dict[ClaimNode | None, Reply] | BackendError, until: float
    ) -> BackendError | None:
        """Wait for a session's answers; its error if there are none."""
        if isinstance(replies, BackendError):
            return replies
        try:
            if replies:
                await self._calls.answer(session, replies[None], until)
                for node, reply in replies.items():
                    if node is not None:
                        await self._looked(node, reply, until)
        except BackendError as error:
            return None if session.is_over() else error
        return None

    async def _looked(self, node: ClaimNode, reply: Reply, until: float) -> None:
        if reply.error is not None:
            raise self._calls.translated(reply.error)
        if reply.value is None:
            node.mark_gone()
        elif reply.value.version != node.version:
            await self._releaser.read_own(node, until)

    async def _answer(self, grant: Grant, node: ClaimNode | None, started: float, until: float) -> Grant | Loss:
        if node is None:
            return _TAKEN
        session = node.session
        if node.state is not ClaimState.PRESENT and node.broken is None:
            node.broken = await self._releaser.break_note(node, until)
        if node.broken is not None:  # the claim stays known until its ttl is over: its release gets the same answer
            return Loss(LossReason.BROKEN, node.broken)
        if node.state is not ClaimState.PRESENT:
            session.forget(node)
            return session.loss or _TAKEN
        valid_until = session.validity.until
        if valid_until <= started:
            return UNCONFIRMED
        if not session.extend(node, valid_until):
            return _TAKEN
        return Grant(grant.claim, grant.fence, min(session.validity.ttl, valid_until - started))
