"""The grants that were seen while a page was open: what the timeline of a lock shows, and its ttl and last renewal.

A store tells how long a grant still lasts, not for how long it was granted. The most that was ever seen left is the ttl
as far as is known, and a rise of what is left is a renewal. Nothing is read for this alone, and memory is bounded.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from leasehold.values import Mode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.fleet import FleetState
    from leasehold.values import Holding, LockState

__all__ = ["GrantSeen", "History"]

CLOSED_KEPT = 12  # grants of one name that are over
NAMES_KEPT = 10_000  # names without any grant now
SLACK = 0.5  # seconds: less of a rise is the jitter of two answers


@dataclass(frozen=True, slots=True)
class GrantSeen:
    """One grant, as far as it was seen. Instants are seconds since 1970 on this machine's clock."""

    fence: int
    holder: str
    began: float
    seen: float
    left: float  # at `seen`
    ttl: float  # the most that was seen left
    renewed: float | None = None
    ended: float | None = None
    end: str | None = None
    broken: str | None = None


class History:
    """What was seen of each name. One thread at a time notes; any may read, as each name's tuple is replaced whole."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[GrantSeen, ...]] = {}
        self._open: set[str] = set()
        self.since: float = time.time()

    def of(self, name: str) -> Sequence[GrantSeen]:
        """The grants of a name, newest first."""
        return self._names.get(name, ())

    def names(self) -> Sequence[str]:
        """All names that were seen."""
        return tuple(self._names)

    def grant(self, name: str, fence: int) -> GrantSeen | None:
        """One grant that was seen."""
        return next((grant for grant in self.of(name) if grant.fence == fence), None)

    def note_fleet(self, state: FleetState) -> None:
        """Note an answer about all locks."""
        now = time.time()
        present = set()
        for lock in state.locks:
            present.add(lock.name)
            self._note(lock.name, lock.holdings, now, alone=lock.mode is Mode.EXCLUSIVE)
        for name in tuple(self._open - present):
            self._note(name, (), now)
        self._forget_the_oldest()

    def note_lock(self, name: str, state: LockState | None) -> None:
        """Note an answer about one lock."""
        alone = state is not None and state.mode is Mode.EXCLUSIVE
        self._note(name, () if state is None else state.holdings, time.time(), alone=alone)

    def _note(self, name: str, holdings: Sequence[Holding], now: float, *, alone: bool = False) -> None:
        before = self._names.get(name, ())
        if not before and not holdings:
            return
        present = {holding.fence: holding for holding in holdings}
        known = {grant.fence: grant for grant in before}
        opened = [_seen(known.get(fence), holding, now) for fence, holding in present.items()]
        opened.sort(key=lambda grant: -grant.fence)
        end = min(now, opened[0].began) if alone and opened else now  # one alone was over when the next began
        closed = [
            grant if grant.end else _closed(grant, max(end, grant.seen))
            for grant in before
            if grant.fence not in present
        ]
        self._names[name] = (*opened, *closed[:CLOSED_KEPT])
        (self._open.add if opened else self._open.discard)(name)

    def _forget_the_oldest(self) -> None:
        """A tenth more than is needed, so that it is seldom done."""
        if len(self._names) - len(self._open) <= NAMES_KEPT:
            return
        over = sorted((grants[0].seen, name) for name, grants in tuple(self._names.items()) if name not in self._open)
        for _, name in over[: len(over) - NAMES_KEPT * 9 // 10]:
            self._names.pop(name, None)


def _seen(before: GrantSeen | None, holding: Holding, now: float) -> GrantSeen:
    left = holding.expires_in
    if before is None:
        began = now - holding.held_for
        return GrantSeen(holding.fence, str(holding.holder), began, now, left, left, broken=holding.broken)
    expected = before.left - (now - before.seen)
    renewed = before.renewed if left < expected + SLACK else now - max(0.0, before.ttl - left)
    return replace(before, seen=now, left=left, ttl=max(before.ttl, left), renewed=renewed, broken=holding.broken)


def _closed(grant: GrantSeen, now: float) -> GrantSeen:
    """A grant that is gone before its time was released; one that is gone later may have run out."""
    if grant.broken is not None:
        end = f"broken: {grant.broken}"
    else:
        end = "released" if now < grant.seen + grant.left else "released or expired"
    return replace(grant, ended=now, end=end)
