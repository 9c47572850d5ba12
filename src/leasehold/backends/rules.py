"""The rules that stores with a list of holders and a queue share: who is admitted, and what does not go together.

Plain functions over values; each store counts its own holders and waiters and asks here. The rules:

    exclusive   nobody holds, nobody waits ahead
    shared      no exclusive claim holds or waits ahead
    permit      holders and waiters ahead are fewer than the capacity
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold.errors import ModeConflict
from leasehold.values import Mode

if TYPE_CHECKING:
    from leasehold.values import Claim

__all__ = [
    "ABANDONED_KEPT",
    "FENCE_KEPT",
    "RECHECK",
    "Crowd",
    "admits",
    "check_kind",
    "handed_over_since",
    "place_lifetime",
]

RECHECK = 1.0
RECHECKS_MISSED = 3  # a waiter that did not ask again for so many re-checks is dead
ABANDONED_KEPT = 86_400.0  # how long the next holder can still learn that the last one vanished
DRIFT = 0.01  # by so much a second of a store's clock may be shorter than one of ours
FENCE_KEPT = 86_400.0  # how long a key remembers the fence of its record, where the fence alone does not say its age


@dataclass(frozen=True, slots=True)
class Crowd:
    """How many there are, and whether one of them wants or has the name alone."""

    number: int
    exclusive: bool


def admits(claim: Claim, holders: Crowd, ahead: Crowd) -> bool:
    """Whether nothing that holds or waits ahead is in the way of this claim."""
    if claim.mode is Mode.PERMIT:
        return holders.number + ahead.number < claim.capacity
    if claim.mode is Mode.EXCLUSIVE:
        return holders.number == 0 and ahead.number == 0
    return not holders.exclusive and not ahead.exclusive


def place_lifetime(claim: Claim) -> float:
    """How long a place in the queue lives without being asked for; a third of it is the time between re-checks."""
    return min(claim.ttl, RECHECKS_MISSED * RECHECK)


def handed_over_since(sent: float, passed: float) -> float:
    """From when a grant counts that came by message, without a request of ours to count from.

    It was made `passed` seconds of the store's clock after the store had answered a request that we sent at `sent`; on
    our clock less may have passed.
    """
    return sent + passed * (1 - DRIFT)


def check_kind(claim: Claim, mode: Mode, capacity: int, store: str) -> None:
    """Refuse a claim for a name that is in use as another kind of lock."""
    wanted, present = _kind(claim.mode, claim.capacity), _kind(mode, capacity)
    if wanted != present:
        raise ModeConflict(
            f"this name is in use as a {present}, and was asked for as a {wanted}; use one kind of lock for one name",
            backend=store,
        )


def _kind(mode: Mode, capacity: int) -> str:
    return f"semaphore of {capacity}" if mode is Mode.PERMIT else "lock"
