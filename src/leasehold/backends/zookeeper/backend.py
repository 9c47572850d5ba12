"""`zk://h1,h2,h3/root`: the verbs of the port, over sessions, claims and nodes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leasehold.backends.zookeeper.asking import Asker
from leasehold.backends.zookeeper.claims import Claims
from leasehold.backends.zookeeper.nodes import Paths
from leasehold.backends.zookeeper.observing import Observer
from leasehold.backends.zookeeper.pool import Pool
from leasehold.backends.zookeeper.renewing import Renewer
from leasehold.backends.zookeeper.standing import Stage, Standing, registry_for
from leasehold.errors import BackendUnavailable, OutcomeUnknown
from leasehold.spi import Place
from leasehold.values import Capability, Grant, Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.backends.zookeeper.session import Session
    from leasehold.backends.zookeeper.settings import Settings
    from leasehold.findings import Finding
    from leasehold.spi import Backend, Runtime
    from leasehold.values import Claim, LockState, Loss

__all__ = ["ZooKeeperBackend", "ZooKeeperStore"]


class ZooKeeperStore:
    """An ensemble, named but not connected to."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def open_backend(self, runtime: Runtime) -> Backend:
        """Sessions of its own for each client; the first is opened with the first request."""
        return ZooKeeperBackend(self._settings, runtime)


class ZooKeeperBackend:
    """A client's sessions with an ensemble."""

    capabilities = frozenset(
        {
            Capability.EXCLUSIVE,
            Capability.FENCING,
            Capability.INSPECT,
            Capability.SHARED,
            Capability.PERMITS,
            Capability.FIFO,
            Capability.PUSH,
            Capability.SESSION,
        }
    )

    def __init__(self, settings: Settings, runtime: Runtime) -> None:
        self.label = settings.label
        self._runtime = runtime
        self._paths = Paths(settings.root)
        self._registry = registry_for(settings.identity)
        self._asker = Asker(runtime, settings.label)
        self._pool = Pool(settings, self._paths, self._registry, runtime)
        self._claims = Claims(settings, self._paths, runtime, self._asker)
        self._renewer = Renewer(self._registry, self._claims, self._asker, runtime)
        self._observer = Observer(settings, self._pool, paths=self._paths, asker=self._asker, runtime=runtime)
        self._settings = settings

    async def try_acquire(self, claim: Claim, _until: float = math.inf, /) -> Grant | Refusal:
        """See `Backend`."""
        answer = await self._ask(claim)
        if not isinstance(answer, Place):
            return answer
        standing = self._registry.standings.get(claim.owner)
        if standing is not None:
            await self._claims.leave(standing)
        return Refusal(claim.key, answer.holder, None, answer.ahead)

    async def join(self, claim: Claim, _until: float = math.inf, /) -> Grant | Place | Refusal:
        """See `Queueing`."""
        return await self._ask(claim)

    async def turn(self, place: Place, _until: float = math.inf, /) -> Grant | Place | Refusal:
        """See `Queueing`."""
        claim, now = place.claim, self._runtime.now()
        standing = self._registry.standings.get(claim.owner)
        if standing is None or standing.session.is_over():
            return Refusal(claim.key)
        if standing.fence is not None:
            return await self._again(standing, now)
        if not standing.session.extend(standing, now + claim.ttl):
            return Refusal(claim.key)
        await self._connect(standing.session)
        if not standing.news:
            await self._claims.probe(standing.session)  # answered behind everything that has happened before
        return await self._claims.advance(standing, now)

    async def renew(self, grants: Sequence[Grant], _until: float = math.inf, /) -> Sequence[Grant | Loss]:
        """See `Backend`."""
        return await self._renewer.renew(grants)

    async def release(self, grant: Grant, _until: float = math.inf, /) -> bool:
        """See `Backend`."""
        standing = self._registry.standings.get(grant.claim.owner)
        if standing is None or standing.fence != grant.fence:
            return False
        if standing.stage is not Stage.STANDING or not await self._asker.connected(standing.session):
            standing.session.forget(standing)
            return False
        try:
            return await self._claims.delete(standing)
        except OutcomeUnknown:
            if not await self._asker.connected(standing.session):
                return False  # the ensemble had ended the session, and we did not know
            raise

    async def withdraw(self, claim: Claim, _until: float = math.inf, /, *, doubt: bool = True) -> None:
        """See `Backend`."""
        now = self._runtime.now()
        self._registry.withdraw(claim.owner, now + claim.ttl, now)
        standing = self._registry.standings.get(claim.owner)
        if standing is not None:
            await self._claims.leave(standing)

    async def inspect(self, key: str) -> LockState | None:
        """See `Inspecting`."""
        return await self._observer.inspect(key)

    async def list(self, prefix: str) -> Sequence[LockState]:
        """See `Inspecting`."""
        return await self._observer.states(prefix)

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        """See `Inspecting`."""
        return await self._observer.break_(key, fence, reason, now=now)

    async def raise_fence(self, key: str, fence: int) -> int:
        """See `Inspecting`."""
        return await self._observer.raise_fence(key, fence)

    async def examine(self) -> Sequence[Finding]:
        """See `Examining`."""
        from leasehold.backends.zookeeper.examining import Examiner  # noqa: PLC0415 - only the doctor needs it

        examiner = Examiner(self._settings, self._pool, paths=self._paths, asker=self._asker, runtime=self._runtime)
        return await examiner.examine()

    async def close(self) -> None:
        """See `Backend`."""
        await self._pool.close()

    async def _ask(self, claim: Claim) -> Grant | Place | Refusal:
        """Stand in line, once, however often it is asked for."""
        started = self._runtime.now()
        if self._registry.is_withdrawn(claim.owner, started):
            return Refusal(claim.key)
        standing = self._registry.standings.get(claim.owner)
        if standing is not None and standing.fence is not None:
            return await self._again(standing, started)
        if standing is not None and standing.session.is_over():  # whatever there was is gone with it
            standing.session.forget(standing)
            standing = None
        if standing is not None:
            if not standing.session.extend(standing, started + claim.ttl):
                return Refusal(claim.key)  # it was given up, and is being taken away
        else:
            standing = await self._enter(claim)
        try:
            if standing.stage is not Stage.STANDING:
                await self._connect(standing.session)
                await self._claims.settle(standing)
            return await self._claims.advance(standing, started)
        except BackendUnavailable as error:
            if standing.may_be_there:  # so it is not as if nothing had been done
                raise OutcomeUnknown(str(error), backend=self.label) from None
            raise

    async def _enter(self, claim: Claim) -> Standing:
        """Be known to a session that is connected."""
        session = self._pool.session_for(claim.ttl, claim.owner)
        try:
            await self._connect(session)
            now = self._runtime.now()
            standing = Standing(claim, session, self._paths.lock(claim.key), self._runtime.signal(), now)
            session.admit(standing)
        finally:
            session.promised.pop(claim.owner, None)
        return standing

    async def _again(self, standing: Standing, started: float) -> Grant | Refusal:
        """The same claim again, because its answer was lost: the same grant, with a new expiry."""
        if standing.broken is not None or standing.stage is not Stage.STANDING:
            return Refusal(standing.claim.key)
        await self._connect(standing.session)
        await self._claims.probe(standing.session)
        return await self._claims.confirm(standing, started)

    async def _connect(self, session: Session) -> None:
        if not await self._asker.connected(session):
            raise BackendUnavailable(f"{self.label} ended the session; ask again", backend=self.label)
