"""Single flight: of the calls of one client that want the same thing built, one builds, and all share the outcome.

A shared build is known by a key, from the moment at which its leader is found until it has an outcome. The leader works
in its own thread or task: those who wait may leave without disturbing it, and if the leader itself is interrupted the
build ends without a result, and one of those who waited leads the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

    from leasehold._core.open_client import OpenClient
    from leasehold.spi import Signal

__all__ = ["GAVE_UP", "Outcome", "SharedBuild", "finish", "join_or_start", "wait_for"]

LONGEST_WAIT = 3600.0  # a wait without end looks again now and then


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a build: a result, or an error, or neither if its leader gave up.

    `by_build`: the error is the one that the caller's own code raised, and not one of ours.
    """

    payload: bytes | None = None
    error: Exception | None = None
    by_build: bool = False


GAVE_UP = Outcome()


class SharedBuild:
    """One thing that is being built in this process."""

    __slots__ = ("_key", "fence", "leader", "outcome", "signals")

    def __init__(self, key: str, leader: Hashable) -> None:
        self._key = key
        self.leader = leader
        self.fence: int | None = None  # of the leader's lease, once it has begun to build
        self.outcome: Outcome | None = None
        self.signals: list[Signal] = []  # of those who wait; changed by single calls, so threads may share it

    @property
    def key(self) -> str:
        """What is being built."""
        return self._key


class _Waiter:
    """A call that waits, as the client knows it."""


def join_or_start(opened: OpenClient, mine: SharedBuild, fence: int = 0) -> SharedBuild:
    """The build under way for the key, which is the caller's own if there was none: then the caller leads it.

    `fence` is the highest that the caller has seen at the key. Where it is higher than the build's own, the value being
    built went out of date after its build began, and the caller, who came later, must not get it.

    The caller finishes its own build in a `finally` around this call, whichever it was given: so a build is finished
    although its leader was interrupted between any two lines.
    """
    with opened.keeper.guard:
        shared: SharedBuild = opened.builds.setdefault(mine.key, mine)
        if shared.fence is not None and shared.fence < fence:
            opened.builds[mine.key] = shared = mine
    return shared


def finish(opened: OpenClient, shared: SharedBuild, outcome: Outcome) -> None:
    """End a build: those who wait wake up and share the outcome."""
    shared.outcome = outcome
    with opened.keeper.guard:
        if opened.builds.get(shared.key) is shared:
            del opened.builds[shared.key]
    for signal in tuple(shared.signals):  # one that comes later sees the outcome
        signal.set()


async def wait_for(opened: OpenClient, shared: SharedBuild, deadline: float) -> Outcome | None:
    """Wait until the build has an outcome; None if the deadline comes first."""
    runtime, waiter = opened.runtime, _Waiter()
    signal = runtime.signal()
    shared.signals.append(signal)
    try:
        while shared.outcome is None:
            now = runtime.now()
            if now >= deadline:
                return None
            await opened.waiting_calls.wait(waiter, signal, min(deadline, now + LONGEST_WAIT))
            signal.clear()
        return shared.outcome
    finally:
        shared.signals.remove(signal)
        opened.waiting_calls.ended(waiter)
