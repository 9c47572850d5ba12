"""The life of a lease as a table: every state, every event, what follows.

The table is the only place that decides; the diagram in the documentation is drawn from it. A pair that is missing
cannot happen in a correct program, and is a KeyError instead of a guess.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

__all__ = ["FREED", "HELD", "LOST", "RELEASE", "RELEASED", "RELEASING", "TRANSITIONS", "Event", "State"]


class State(Enum):
    """Where a lease is in its life."""

    HELD = "held"  # trusted until its deadline, and renewed
    RELEASING = "releasing"  # a release was sent and is not confirmed yet; never renewed again
    RELEASED = "released"  # the store confirmed, or the ttl did it
    LOST = "lost"  # over without release; stays so for ever

    if not TYPE_CHECKING:  # to whom it is the same
        __hash__ = object.__hash__  # states are dictionary keys on the hot path


HELD, RELEASING, RELEASED, LOST = State  # a name of an enumeration is slow to look up


class Event(Enum):
    """What can happen to a lease."""

    CONFIRM = "confirm"  # the store confirmed a renewal in time
    RELEASE = "release"  # the holder called release
    FREED = "freed"  # the store confirmed that nothing is held any more
    LOSE = "lose"  # the deadline passed, or the store no longer has the grant

    __hash__ = object.__hash__


RELEASE, FREED = Event.RELEASE, Event.FREED

TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.HELD, Event.CONFIRM): State.HELD,
    (State.HELD, Event.RELEASE): State.RELEASING,
    (State.HELD, Event.LOSE): State.LOST,
    (State.RELEASING, Event.CONFIRM): State.RELEASING,  # a renewal that was under way: too late to matter
    (State.RELEASING, Event.RELEASE): State.RELEASING,  # the first release failed; this one tries again
    (State.RELEASING, Event.FREED): State.RELEASED,
    (State.RELEASING, Event.LOSE): State.RELEASED,  # it was to be freed, and now it is
    (State.RELEASED, Event.CONFIRM): State.RELEASED,
    (State.RELEASED, Event.RELEASE): State.RELEASED,
    (State.RELEASED, Event.FREED): State.RELEASED,
    (State.RELEASED, Event.LOSE): State.RELEASED,
    (State.LOST, Event.CONFIRM): State.LOST,  # loss is decided once; a late confirmation does not undo it
    (State.LOST, Event.RELEASE): State.LOST,
    (State.LOST, Event.FREED): State.LOST,
    (State.LOST, Event.LOSE): State.LOST,
}
