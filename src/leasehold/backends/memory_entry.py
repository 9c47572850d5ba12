"""One key of the memory store: who holds it, who waits, whose late requests are refused. It knows no clock or mutex.

Everything here is called under the store's mutex, with the store's time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from leasehold.backends.rules import ABANDONED_KEPT, Crowd, admits
from leasehold.values import Claim, Holding, LockState, Mode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from leasehold.spi import Signal
    from leasehold.values import Holder

__all__ = ["Entry", "Held", "Waiting"]


@dataclass(slots=True)
class Held:
    """One grant."""

    claim: Claim
    fence: int
    since: float
    expires: float
    abandoned: bool
    broken: str | None = None
    cooling: bool = False  # released, kept for its min_hold


@dataclass(slots=True)
class Waiting:
    """One place in the queue."""

    claim: Claim
    signal: Signal
    expires: float


@dataclass(slots=True)
class Entry:
    """Everything about one key. Owners are the keys of all four."""

    holdings: dict[str, Held] = field(default_factory=dict)
    queue: dict[str, Waiting] = field(default_factory=dict)  # dictionaries keep their order
    withdrawn: dict[str, float] = field(default_factory=dict)  # late requests of these are refused until then
    broken: dict[str, tuple[str, float]] = field(default_factory=dict)  # broken at once; the holder learns why
    abandoned_until: float = 0.0
    quiet_until: float = math.inf  # nothing in the four runs out before; it may be too early, never too late

    def first_claim(self) -> Claim | None:
        """Whoever is here longest: all others are of its kind. It does not look at more, however long the queue is."""
        for held in self.holdings.values():
            return held.claim
        for waiting in self.queue.values():
            return waiting.claim
        return None

    def first_holder(self) -> Holder | None:
        """Who is in the way."""
        return next((held.claim.holder for held in self.holdings.values()), None)

    def ahead_of(self, owner: str) -> list[Waiting]:
        """Who waits before this owner; everybody, if it does not wait itself."""
        ahead = []
        for other, waiting in self.queue.items():
            if other == owner:
                break
            ahead.append(waiting)
        return ahead

    def admits(self, claim: Claim, ahead: Collection[Waiting]) -> bool:
        """Whether nobody who holds, and nobody of those ahead, is in the way."""
        if not self.holdings and not ahead:
            return True  # the common case, and the rules need not be asked
        return admits(claim, _crowd(self.holdings.values()), _crowd(ahead))

    def call_next(self) -> None:
        """Wake every waiter whose turn it may be; each then asks for itself."""
        ahead: list[Waiting] = []
        for waiting in self.queue.values():
            if not self.admits(waiting.claim, ahead):
                return
            waiting.signal.set()
            ahead.append(waiting)

    def expire(self, now: float) -> None:
        """Remove what has run out by the store's clock. Looks through all of it only when something may have."""
        if now < self.quiet_until:
            return
        before = len(self.holdings) + len(self.queue)
        for holding in [held for held in self.holdings.values() if held.expires <= now]:
            self.drop(holding, now)
        for owner in [owner for owner, waiting in self.queue.items() if waiting.expires <= now]:
            del self.queue[owner]
        if self.withdrawn:
            self.withdrawn = {owner: until for owner, until in self.withdrawn.items() if until > now}
        if self.broken:
            self.broken = {owner: mark for owner, mark in self.broken.items() if mark[1] > now}
        self.quiet_until = min(self._instants(), default=math.inf)
        if len(self.holdings) + len(self.queue) < before:
            self.call_next()

    def runs_out(self, instant: float) -> None:
        """Something new may run out at this instant. Not needed for what only lasts longer than before."""
        self.quiet_until = min(self.quiet_until, instant)

    def _instants(self) -> Iterator[float]:
        yield from (held.expires for held in self.holdings.values())
        yield from (waiting.expires for waiting in self.queue.values())
        yield from self.withdrawn.values()
        yield from (until for _, until in self.broken.values())

    def drop(self, holding: Held, now: float) -> None:
        """End a holding that was not released: the next holder is told."""
        del self.holdings[holding.claim.owner]
        if not holding.cooling:
            self.abandoned_until = now + ABANDONED_KEPT

    def reason_of(self, owner: str) -> str | None:
        """Why this owner's grant was broken at once; None if it was not."""
        mark = self.broken.get(owner)
        return None if mark is None else mark[0]

    @property
    def size(self) -> int:
        """How many facts are kept; one that is only remembered as abandoned counts as well."""
        return max(1, len(self.holdings) + len(self.queue) + len(self.withdrawn) + len(self.broken))

    def is_idle(self, now: float) -> bool:
        """Whether nothing has to be remembered."""
        return not (self.holdings or self.queue or self.withdrawn or self.broken or self.abandoned_until > now)

    def state(self, key: str, now: float) -> LockState | None:
        """What an operator may see."""
        first = self.first_claim()
        if first is None:
            return None
        holdings = tuple(
            Holding(held.claim.holder, held.fence, now - held.since, held.expires - now, held.broken, held.cooling)
            for held in self.holdings.values()
        )
        waiting = tuple(wait.claim.holder for wait in self.queue.values())
        return LockState(key, first.mode, first.capacity, holdings, waiting)


def _crowd(claimants: Collection[Held] | Collection[Waiting]) -> Crowd:
    return Crowd(len(claimants), any(claimant.claim.mode is Mode.EXCLUSIVE for claimant in claimants))
