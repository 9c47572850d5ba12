"""`zk://h1,h2,h3/root`: the verbs of the port, over sessions, claims and nodes."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from leasehold.backends.zookeeper.asking import Asker, Calls
from leasehold.backends.zookeeper.claims import Claims
from leasehold.backends.zookeeper.nodes import Paths
from leasehold.backends.zookeeper.observing import Observer
from leasehold.backends.zookeeper.pool import Pool
from leasehold.backends.zookeeper.renewing import Renewer
from leasehold.backends.zookeeper.standing import Stage, Standing, registry_for
from leasehold.errors import BackendUnavailable, ClientClosed, OutcomeUnknown
from leasehold.spi import Place
from leasehold.values import Capability, Grant, Loss, LossReason, Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.backends.zookeeper.session import Session
    from leasehold.backends.zookeeper.settings import Settings
    from leasehold.findings import Finding
    from leasehold.spi import Backend, Runtime
    from leasehold.values import Claim, LockState

__all__ = ["ZooKeeperBackend", "ZooKeeperStore"]

Answer = TypeVar("Answer", bound=Grant | Place | Refusal)


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
        self._calls = Calls(runtime, settings.label)
        self._asker = Asker(runtime, self._calls, settings.label)
        self._pool = Pool(settings, self._paths, self._registry, runtime)
        self._claims = Claims(settings, self._paths, runtime, self._asker)
        self._renewer = Renewer(self._registry, self._claims, self._asker, runtime)
        self._observer = Observer(settings, self._pool, paths=self._paths, asker=self._asker, runtime=runtime)
        self._settings = settings

    async def try_acquire(self, claim: Claim, until: float = math.inf, /) -> Grant | Refusal:
        """See `Backend`."""
        with self._calls:
            answer = self._unless_closed(claim, await self._ask(claim, until))
            if not isinstance(answer, Place):
                return answer
            standing = self._registry.standings.get(claim.owner)
            if standing is not None:
                await self._claims.leave(standing, until)
            return Refusal(claim.key, answer.holder, None, answer.ahead)

    async def join(self, claim: Claim, until: float = math.inf, /) -> Grant | Place | Refusal:
        """See `Queueing`."""
        with self._calls:
            return self._unless_closed(claim, await self._ask(claim, until))

    async def turn(self, place: Place, until: float = math.inf, /) -> Grant | Place | Refusal:
        """See `Queueing`."""
        with self._calls:
            return self._unless_closed(place.claim, await self._turn(place.claim, until))

    async def renew(self, grants: Sequence[Grant], until: float = math.inf, /) -> Sequence[Grant | Loss]:
        """See `Backend`."""
        with self._calls:
            return await self._renewer.renew(grants, until)

    async def release(self, grant: Grant, until: float = math.inf, /) -> bool | Loss:
        """See `Backend`."""
        with self._calls:
            standing = self._registry.standings.get(grant.claim.owner)
            if standing is None or standing.fence != grant.fence:
                return False
            if standing.stage is not Stage.STANDING or not await self._asker.connected(standing.session, until):
                reason = standing.broken or await self._claims.break_note(standing, until)
                standing.session.forget(standing)
                return False if reason is None else Loss(LossReason.BROKEN, reason)
            try:
                return await self._claims.free(standing, until)
            except OutcomeUnknown:
                with suppress(BackendUnavailable):  # it was sent: its outcome stays unknown without a connection
                    if not await self._asker.connected(standing.session, until):
                        return False  # the session is over, and was before
                raise

    async def withdraw(self, claim: Claim, until: float = math.inf, /, *, doubt: bool = True) -> None:
        """See `Backend`. After `close` too: the steward deletes what is left in sessions that have to stay."""
        now = self._runtime.now()
        if doubt:
            self._registry.withdraw(claim.owner, now + claim.ttl, now)
        standing = self._registry.standings.get(claim.owner)
        if standing is not None:
            await self._claims.leave(standing, until)

    async def inspect(self, key: str) -> LockState | None:
        """See `Inspecting`."""
        with self._calls:
            return await self._observer.inspect(key)

    async def list(self, prefix: str) -> Sequence[LockState]:
        """See `Inspecting`."""
        with self._calls:
            return await self._observer.states(prefix)

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        """See `Inspecting`."""
        with self._calls:
            return await self._observer.break_(key, fence, reason, now=now)

    async def raise_fence(self, key: str, fence: int) -> int:
        """See `Inspecting`."""
        with self._calls:
            return await self._observer.raise_fence(key, fence)

    async def examine(self) -> Sequence[Finding]:
        """See `Examining`."""
        from leasehold.backends.zookeeper.examining import Examiner  # noqa: PLC0415 - only the doctor needs it

        examiner = Examiner(self._settings, self._pool, paths=self._paths, asker=self._asker, runtime=self._runtime)
        with self._calls:
            return await examiner.examine()

    async def close(self) -> None:
        """See `Backend`."""
        self._calls.close()
        await self._pool.close()

    async def _ask(self, claim: Claim, until: float) -> Grant | Place | Refusal:
        """Stand in line, once, however often it is asked for."""
        started = self._runtime.now()
        if self._registry.is_withdrawn(claim.owner, started):
            return Refusal(claim.key)
        standing = self._registry.standings.get(claim.owner)
        if standing is not None and standing.fence is not None:
            return await self._again(standing, started, until)
        if standing is not None and standing.session.is_over():  # whatever there was is gone with it
            standing.session.forget(standing)
            standing = None
        if standing is None:
            standing = await self._enter(claim, until)
        elif not standing.session.extend(standing, started + claim.ttl):
            return Refusal(claim.key)  # it was given up, and is being taken away
        try:
            return await self._stand(standing, started, until)
        except (BackendUnavailable, OutcomeUnknown) as error:
            if standing.may_be_there:
                raise OutcomeUnknown(str(error), backend=self.label) from None
            if standing.is_at(Stage.NEW):  # only questions were sent
                raise BackendUnavailable(str(error), backend=self.label) from None
            raise

    async def _stand(self, standing: Standing, started: float, until: float) -> Grant | Place | Refusal:
        if standing.stage is not Stage.STANDING:
            await self._connect(standing.session, until)
            await self._claims.settle(standing, until)
        return await self._claims.advance(standing, started, until)

    async def _turn(self, claim: Claim, until: float) -> Grant | Place | Refusal:
        now = self._runtime.now()
        standing = self._registry.standings.get(claim.owner)
        if standing is None or standing.session.is_over():
            return Refusal(claim.key)
        if standing.fence is not None:
            return await self._again(standing, now, until)
        if not standing.session.extend(standing, now + claim.ttl):
            return Refusal(claim.key)
        await self._connect(standing.session, until)
        if not standing.news:
            await self._claims.probe(standing.session, until)  # answered behind everything that has happened before
        return await self._claims.advance(standing, now, until)

    def _unless_closed(self, claim: Claim, answer: Answer) -> Answer:
        """What was answered while the client was closed is of use to no caller, and is given up."""
        if self._calls.is_closed:
            standing = self._registry.standings.get(claim.owner)
            if standing is not None:
                standing.session.give_up(standing)
                standing.session.wake()
            raise ClientClosed(backend=self.label)
        return answer

    async def _enter(self, claim: Claim, until: float) -> Standing:
        """Be known to a session that is connected."""
        session = self._pool.session_for(claim.ttl, claim.owner)
        try:
            await self._connect(session, until)
            now = self._runtime.now()
            standing = Standing(claim, session, self._paths.lock(claim.key), self._runtime.signal(), now)
            session.admit(standing)
        finally:
            session.promised.pop(claim.owner, None)
        return standing

    async def _again(self, standing: Standing, started: float, until: float) -> Grant | Refusal:
        """The same claim again, because its answer was lost: the same grant, with a new expiry."""
        if standing.broken is not None or standing.stage is not Stage.STANDING:
            return Refusal(standing.claim.key)
        await self._connect(standing.session, until)
        await self._claims.probe(standing.session, until)
        return await self._claims.confirm(standing, started, until)

    async def _connect(self, session: Session, until: float) -> None:
        if not await self._asker.connected(session, until):
            raise BackendUnavailable(f"{self.label} ended the session; ask again", backend=self.label)
