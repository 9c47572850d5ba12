"""Renewing: one probe for each session, whatever stands in it, and a look at the nodes that are not watched yet.

A node that is watched needs no look: its deletion would have been reported on the connection before the probe's answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kazoo.protocol.serialization import Exists, Sync

from leasehold.backends.zookeeper.asking import LONGEST_CALL
from leasehold.backends.zookeeper.session import UNCONFIRMED
from leasehold.backends.zookeeper.standing import Stage
from leasehold.errors import BackendError, BackendUnavailable
from leasehold.values import Grant, Loss, LossReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.backends.zookeeper.asking import Asker
    from leasehold.backends.zookeeper.claims import Claims
    from leasehold.backends.zookeeper.session import Session
    from leasehold.backends.zookeeper.standing import Registry, Standing
    from leasehold.backends.zookeeper.wire import Reply
    from leasehold.spi import Runtime

__all__ = ["Renewer"]

_TAKEN = Loss(LossReason.TAKEN, "its node is gone")


class Renewer:
    """Renews the grants of one client."""

    def __init__(self, registry: Registry, claims: Claims, asker: Asker, runtime: Runtime) -> None:
        self._registry = registry
        self._claims = claims
        self._asker = asker
        self._runtime = runtime

    async def renew(self, grants: Sequence[Grant], until: float) -> list[Grant | Loss]:
        """An answer for each, in order. What a session did not confirm is believed for as long as it was before."""
        started = self._runtime.now()
        until = min(until, started + LONGEST_CALL)  # of all sessions together
        standings = [self._find(grant) for grant in grants]
        by_session: dict[Session, list[Standing]] = {}
        for standing in standings:
            if standing is not None:
                by_session.setdefault(standing.session, []).append(standing)
        probes = {session: self._send(session, members) for session, members in by_session.items()}
        failures = [await self._confirmed(session, probe, until) for session, probe in probes.items()]
        if failures and all(failures):
            raise failures[0]  # type: ignore[misc]  # all of them are errors
        return [
            await self._answer(grant, standing, started, until)
            for grant, standing in zip(grants, standings, strict=True)
        ]

    def _find(self, grant: Grant) -> Standing | None:
        standing = self._registry.standings.get(grant.claim.owner)
        return standing if standing is not None and standing.fence == grant.fence else None

    def _send(self, session: Session, members: list[Standing]) -> dict[Standing | None, Reply] | BackendError:
        """The probe, and behind it the nodes that are not watched yet."""
        if session.is_over():
            return {}
        try:
            replies: dict[Standing | None, Reply] = {}
            for standing in members:
                if standing.stage is Stage.STANDING and not standing.watches_itself:
                    look = Exists(standing.path, session.on_event)
                    replies[standing] = session.send(look, then=session.watch(standing.path, standing))
            probe = Sync(members[0].parent)
            replies[None] = session.send(probe, proves=True, signal=self._runtime.signal())
        except BackendUnavailable as error:
            return error
        return replies

    async def _confirmed(
        self, session: Session, replies: dict[Standing | None, Reply] | BackendError, until: float
    ) -> BackendError | None:
        """Wait for a session's answers; its error if there are none."""
        if isinstance(replies, BackendError):
            return replies
        try:
            if replies:
                await self._asker.answer(session, replies[None], until)
                for standing, reply in replies.items():
                    if standing is not None:
                        await self._looked(standing, reply, until)
        except BackendError as error:
            return None if session.is_over() else error
        return None

    async def _looked(self, standing: Standing, reply: Reply, until: float) -> None:
        if reply.error is not None:
            raise self._asker.translated(reply.error)
        if reply.value is None:
            standing.vanish()
        elif reply.value.version != standing.version:
            await self._claims.read_own(standing, until)

    async def _answer(self, grant: Grant, standing: Standing | None, started: float, until: float) -> Grant | Loss:
        if standing is None:
            return _TAKEN
        session = standing.session
        if standing.stage is not Stage.STANDING and standing.broken is None:
            standing.broken = await self._claims.break_note(standing, until)
        if standing.broken is not None:  # the claim stays known until its ttl is over: its release is answered so too
            return Loss(LossReason.BROKEN, standing.broken)
        if standing.stage is not Stage.STANDING:
            session.forget(standing)
            return session.why_over or _TAKEN
        believed = session.belief.until
        if believed <= started:
            return UNCONFIRMED
        if not session.extend(standing, believed):
            return _TAKEN
        return Grant(grant.claim, grant.fence, min(session.belief.ttl, believed - started))
