"""What a library of metrics, and of traces, has to do for the recorder: the base of the two sinks."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.events import Event

__all__ = ["ACQUIRE", "CHANGING", "HELD", "HOLD", "Hold", "Pair", "Sink"]

ACQUIRE = "leasehold.lock.acquire.duration"
HOLD = "leasehold.lock.hold.duration"
HELD = "leasehold.lock.held"

# Taken around every change of a metric that has a lock of its own, and before a fork: a child must not inherit one that
# is taken. In the child it is given back before the recorders, which are registered later, set their gauges to zero.
CHANGING = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=CHANGING.acquire, after_in_parent=CHANGING.release, after_in_child=CHANGING.release)


@dataclass(slots=True)
class Pair:
    """What an uncontended pair of acquire and release counts in, found once for each group and mode."""

    group: str
    mode: str
    acquired: Callable[[float], None]
    released: Callable[[float], None]


@dataclass(slots=True)
class Hold:
    """A lock that is held."""

    name: str
    fence: int
    pair: Pair
    since: float
    span: Any = None
    election: str | None = None
    share: str | None = None


class Sink:
    """Where measurements go. Labels are in the order of the instrument's."""

    destination: object  # a client is counted only once in each
    traces: bool = False  # whether it makes spans

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

        def acquired(waited: float) -> None:
            self.observe(ACQUIRE, waited, backend, group, mode, "acquired")
            self.shift(HELD, 1, backend, group)

        def released(held: float) -> None:
            self.observe(HOLD, held, backend, group, "released")
            self.shift(HELD, -1, backend, group)

        return Pair(group, mode, acquired, released)

    # --- for spans

    def begin(self, hold: Hold, waited: float) -> None:
        """A wait ended with a grant, and a hold begins."""

    def not_acquired(self, event: Event, outcome: str, group: str) -> None:
        """A wait ended without a grant."""

    def end(self, hold: Hold, end: str) -> None:
        """A hold ended."""

    def during(self, hold: Hold, event: Event) -> None:
        """Something happened while it was held: a renewal failed, or it was lost."""
