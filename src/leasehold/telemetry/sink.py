"""What a library of metrics, and of traces, has to do for the recorder: the base of the sinks."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leasehold.events import Event

__all__ = ["ACQUIRE", "HELD", "HOLD", "CollectingSink", "Hold", "HoldsLocks", "Pair", "Sink"]

ACQUIRE = "leasehold.lock.acquire.duration"
HOLD = "leasehold.lock.hold.duration"
HELD = "leasehold.lock.held"


@dataclass(slots=True)
class Pair:
    """What an uncontended pair of acquire and release counts in, found once for each group and mode."""

    group: str
    mode: str
    acquired: Callable[[float], None]
    released: Callable[[float], None]


@dataclass(slots=True)
class Hold:
    """What a lock that is held has beside its pair and its beginning: a span, or what a pattern made of it."""

    span: Any = None
    election: str | None = None
    share: str | None = None


class HoldsLocks(Protocol):
    """A recorder, as a collection sees it."""

    def held(self) -> Iterable[tuple[str, str]]:
        """Backend and group of each lock that is held."""


class Sink:
    """Where measurements go. Labels are in the order of the instrument's."""

    destination: object  # a client is counted only once in each
    traces: bool = False  # whether it makes spans

    def follow(self, recorder: HoldsLocks) -> None:
        """A recorder reports here from now on."""

    def leave(self, recorder: HoldsLocks) -> None:
        """It does not any more."""

    def observe(self, instrument: str, value: float, *labels: str) -> None:
        """One value of a histogram."""
        raise NotImplementedError

    def count(self, instrument: str, *labels: str) -> None:
        """One more of a counter."""
        raise NotImplementedError

    def shift(self, instrument: str, by: int, *labels: str) -> None:
        """More or less of what goes up and down."""
        raise NotImplementedError

    def put(self, instrument: str, value: int, *labels: str) -> None:
        """The present value of a gauge."""
        raise NotImplementedError

    def zero(self, instrument: str, *labels: str) -> None:
        """In a forked child: this process has none of what its parent had."""
        raise NotImplementedError

    def pair(self, backend: str, group: str, mode: str) -> Pair:
        """The counting of a grant, given how long it took, and of a release, given how long it was held."""
        raise NotImplementedError

    # --- for spans

    def begin(self, hold: Hold, pair: Pair, name: str, fence: int, waited: float) -> None:
        """A wait ended with a grant, and a hold begins."""

    def not_acquired(self, event: Event, outcome: str, group: str) -> None:
        """A wait ended without a grant."""

    def end(self, hold: Hold, end: str) -> None:
        """A hold ended."""

    def during(self, hold: Hold, event: Event) -> None:
        """Something happened while it was held: a renewal failed, or it was lost."""


class CollectingSink(Sink):
    """A sink whose library asks for the present values: what is held is counted then, and not at each change."""

    def __init__(self) -> None:
        self._recorders: weakref.WeakSet[Any] = weakref.WeakSet()
        self._known: dict[tuple[str, ...], int] = {}  # backends and groups, which show a zero when nothing is held

    def follow(self, recorder: HoldsLocks) -> None:
        """Count what it holds at each collection."""
        self._recorders.add(recorder)

    def leave(self, recorder: HoldsLocks) -> None:
        """Count it no longer."""
        self._recorders.discard(recorder)

    def shift(self, instrument: str, by: int, *labels: str) -> None:
        """More or less of what goes up and down; of what is held, only that there is such a series."""
        if instrument == HELD:
            self._known[labels] = 0
        else:
            self.shift_now(instrument, by, *labels)

    def shift_now(self, instrument: str, by: int, *labels: str) -> None:
        """More or less of what is not counted at a collection."""
        raise NotImplementedError

    def held(self) -> dict[tuple[str, ...], int]:
        """How many locks are held, by backend and group."""
        found = dict(self._known)
        for recorder in list(self._recorders):
            for labels in recorder.held():
                found[labels] = found.get(labels, 0) + 1
        return found
