"""A store between the core and the simulated servers, told of: who asks for what, and what got no answer.

`Watched` stands in front of a shipped backend and changes nothing. `ServerModel` is the account for stores whose
servers can be looked into: what they have is the truth, and every check asks them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from leasehold.errors import BackendUnavailable, OutcomeUnknown
from leasehold.values import Capability, Grant
from verification.simulation.accounts import Ownership, StoreModel, compatible

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Mapping, Sequence
    from typing import TypeVar

    from leasehold.errors import BackendError
    from leasehold.spi import Place
    from leasehold.values import Claim, LockState, Loss, Reading, Record, Refusal
    from verification.simulation.accounts import StoreClock
    from verification.simulation.history import History
    from verification.simulation.network import Link
    from verification.simulation.world import Process, World

    T = TypeVar("T")

__all__ = ["Held", "ServerModel", "Servers", "Watched", "Watcher"]


class Watcher(Protocol):
    """Whoever is told."""

    model: StoreModel

    def expect(self, claim: Claim, link: Link) -> None:
        """This claim may reach the store from now on."""


class Watched:
    """The port, with a word to the watcher before each request and after each failure."""

    def __init__(self, backend: Any, link: Link, watcher: Watcher, *, queueing: bool) -> None:
        self._backend = backend
        self._link = link
        self._watcher = watcher
        self.label = backend.label
        without = {Capability.PAUSE} | (set() if queueing else {Capability.FIFO, Capability.PUSH})
        self.capabilities: frozenset[Capability] = backend.capabilities - without

    async def _told(self, verb: str, subject: Any, answer: Awaitable[T]) -> T:
        process = self._link.process
        process.world.note(process.name, "send", verb)
        self._watcher.model.sent(process, verb, subject)
        try:
            answered = await answer
        except (BackendUnavailable, OutcomeUnknown) as error:
            self._watcher.model.failed(process, verb, subject)
            process.world.note(process.name, "no answer", verb, type(error).__name__)
            raise
        self._watcher.model.answered(verb, subject, answered)
        return answered

    async def try_acquire(self, claim: Claim, until: float = math.inf, /) -> Grant | Refusal:
        self._watcher.expect(claim, self._link)
        return await self._told("try_acquire", claim, self._backend.try_acquire(claim, until))

    async def join(self, claim: Claim, until: float = math.inf, /) -> Grant | Place | Refusal:
        self._watcher.expect(claim, self._link)
        return await self._told("join", claim, self._backend.join(claim, until))

    async def turn(self, place: Place, until: float = math.inf, /) -> Grant | Place | Refusal:
        return await self._told("turn", place.claim, self._backend.turn(place, until))

    async def renew(self, grants: Sequence[Grant], until: float = math.inf, /) -> Sequence[Grant | Loss | BackendError]:
        return await self._told("renew", tuple(grants), self._backend.renew(grants, until))

    async def release(self, grant: Grant, until: float = math.inf, /) -> bool | Loss:
        return await self._told("release", grant, self._backend.release(grant, until))

    async def withdraw(self, claim: Claim, until: float = math.inf, /, *, doubt: bool = True) -> None:
        await self._told("withdraw", claim, self._backend.withdraw(claim, until, doubt=doubt))

    async def inspect(self, key: str) -> LockState | None:
        return await self._told("inspect", key, self._backend.inspect(key))

    async def list(self, prefix: str) -> Sequence[LockState]:
        return await self._told("list", prefix, self._backend.list(prefix))

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        return await self._told("break_", (key, fence, now), self._backend.break_(key, fence, reason, now=now))

    async def raise_fence(self, key: str, fence: int) -> int:
        return await self._told("raise_fence", (key, fence), self._backend.raise_fence(key, fence))

    async def read(self, key: str, fence: int = 0) -> Reading:
        return await self._told("read", key, self._backend.read(key, fence))

    async def write(self, record: Record) -> bool:
        return await self._told("write", record, self._backend.write(record))

    async def close(self) -> None:
        await self._backend.close()


@dataclass(frozen=True, slots=True)
class Held:
    """What the servers have of one owner; `expires` on the clock of the model."""

    fence: int
    expires: float
    cooling: bool = False
    broken: bool = False
    spare: int = 0  # fences behind its own that no other grant gets

    def has(self, fence: int) -> bool:
        """Whether this is its fence, or one that it keeps free."""
        return self.fence <= fence <= self.fence + self.spare


class Servers(Protocol):
    """Looks into simulated servers, at no time and without a network."""

    def held(self, key: str) -> Mapping[str, Held]:
        """What is held, by owner."""

    def waiting(self, key: str) -> Collection[str]:
        """The owners that stand in the queue."""


class ServerModel(StoreModel):
    """The account of a store whose servers can be looked into. It is its own watcher.

    `excuses`: holders and servers may disagree in this run, because the servers forget, or a clock steps. Then only
    `waits_out` is left: whether two may believe at once.
    """

    def __init__(
        self,
        world: World,
        history: History,
        servers: Servers,
        *,
        clock: StoreClock | None = None,
        excuses: bool = False,
    ) -> None:
        super().__init__(world, history, clock)
        self.model: StoreModel = self
        self.excuses = excuses
        self._servers = servers
        self._claims: dict[str, Claim] = {}
        self.links: dict[str, Link] = {}  # by owner
        self._highest: dict[str, int] = {}
        self._known: dict[tuple[str, str], Held] = {}  # what each owner was granted last, by key
        self._marks: dict[str, float] = {}  # until when each owner that was withdrawn is surely refused

    def expect(self, claim: Claim, link: Link) -> None:
        """See `Watcher`."""
        self._claims[claim.owner] = claim
        self.links[claim.owner] = link

    def is_excused(self, owner: str) -> bool:
        """See `StoreModel`."""
        return self.excuses or super().is_excused(owner)

    def record(self, key: str, owner: str) -> Ownership | None:
        """See `StoreModel`. What the servers have is what counts."""
        held = self._servers.held(key).get(owner)
        claim = self._claims.get(owner)
        if held is None or claim is None or held.expires <= self.clock.now():
            return None
        return Ownership(
            claim,
            held.fence,
            0.0,
            held.expires,
            abandoned=False,
            cooling=held.cooling,
            broken=held.broken,
            spare=held.spare,
        )

    def waits(self, key: str, owner: str) -> bool:
        """See `StoreModel`."""
        return owner in self._servers.waiting(key)

    def is_in_use(self, key: str) -> bool:
        """See `StoreModel`."""
        now = self.clock.now()
        return bool(self._servers.waiting(key)) or any(each.expires > now for each in self._servers.held(key).values())

    def outlived(self, key: str, owner: str) -> bool:  # noqa: ARG002 - an owner has one key
        """See `StoreModel`."""
        return self._marks.get(owner, math.inf) <= self.clock.now()

    def sent(self, process: Process, verb: str, subject: Any) -> None:
        """See `Observer`. An order whose answer gets lost may be carried out all the same."""
        super().sent(process, verb, subject)
        if verb == "withdraw":
            self._marks.setdefault(subject.owner, self.clock.now() + subject.ttl)
        elif verb == "break_":
            key, fence, at_once = subject
            if at_once:
                self.broken_at_once |= {owner for owner, held in self._servers.held(key).items() if held.has(fence)}

    def changed(self, key: str) -> None:
        """The servers have other data for this key: see that all who hold it may hold it together, and fences rise."""
        now = self.clock.now()
        held = {owner: each for owner, each in self._servers.held(key).items() if each.expires > now}
        claims = [self._claims[owner] for owner in held if owner in self._claims]
        if len(claims) > 1 and not compatible(claims):
            fences = sorted(each.fence for each in held.values())
            self._history.violate("two owners in the store", f"{key} with fences {fences}")
        for owner, each in sorted(held.items(), key=lambda item: item[1].fence):
            known = self._known.get((key, owner))
            if known is not None and known.has(each.fence):
                continue  # a claim whose grant ran out may be granted again, but with a new fence
            if each.fence <= self._highest.get(key, 0):
                self._history.violate(
                    "fence did not rise in the store", f"{key} {each.fence} after {self._highest[key]}"
                )
            self._known[key, owner] = each
            self.granted_at[owner] = (self._world.now, each.fence)
            self._highest[key] = max(self._highest.get(key, 0), each.fence + each.spare)
