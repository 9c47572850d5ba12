"""What all calls of one client share while it is open: runtime, store, keeper, events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from leasehold._core.backoff import GRACE
from leasehold._core.cleanup import Cleanup
from leasehold._core.keeper import Keeper
from leasehold._core.waiting_calls import WaitingCalls
from leasehold.values import Claim

if TYPE_CHECKING:
    from collections.abc import Hashable

    from leasehold._core.events import Events
    from leasehold._core.tenure import Tenure
    from leasehold.spi import Backend, Runtime
    from leasehold.values import Holder, Mode

__all__ = ["OpenClient", "Wish", "open_client"]


@dataclass(frozen=True, slots=True)
class OpenClient:
    """An open client."""

    runtime: Runtime
    backend: Backend
    keeper: Keeper
    events: Events
    connect_timeout: float
    waiting_calls: WaitingCalls
    cleanup: Cleanup
    close_patience: float  # 0 where the clock is turned by hand: nobody turns it while we wait
    entered: WeakValueDictionary[tuple[str, Mode, Hashable], Tenure] = field(default_factory=WeakValueDictionary)
    """What each thread or task holds of re-entrant locks."""
    seen: dict[str, int] = field(default_factory=dict)
    """By key, the highest fence that a guarded resource has told us of since the last acquire."""

    async def close(self) -> None:
        """End the calls that wait, then the leases, then what is done in the background, then the connections."""
        self.waiting_calls.close()
        await self.keeper.close()
        now = self.runtime.now()
        await self.waiting_calls.finish(now + min(GRACE, self.close_patience))
        await self.cleanup.close(now + self.close_patience)
        await self.backend.close()

    def bury(self) -> None:
        """We are a forked child: everything belongs to the parent."""
        self.keeper.bury()
        self.cleanup.bury()

    def note_fence(self, key: str, fence: int) -> None:
        """A resource has seen this fence, so a grant below it would be refused there; see `lift`."""
        with self.keeper.guard:
            self.seen[key] = max(fence, self.seen.get(key, 0))


def open_client(
    runtime: Runtime, backend: Backend, events: Events, connect_timeout: float, close_patience: float
) -> OpenClient:
    """Everything that a client has while it is open; no I/O."""
    keeper, waiting_calls, cleanup = Keeper(runtime, backend, events), WaitingCalls(runtime), Cleanup(runtime)
    return OpenClient(runtime, backend, keeper, events, connect_timeout, waiting_calls, cleanup, close_patience)


@dataclass(frozen=True, slots=True)
class Wish:
    """What a lock object asks for, again and again: a claim without its owner."""

    name: str
    key: str
    ttl: float
    mode: Mode
    capacity: int
    min_hold: float
    max_hold: float | None
    renew: bool
    holder: Holder

    def claim(self, owner: str) -> Claim:
        """One attempt, under an owner value that no other attempt has."""
        return Claim(self.key, owner, self.ttl, self.mode, self.capacity, self.min_hold, self.holder)
