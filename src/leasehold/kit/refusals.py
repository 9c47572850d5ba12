"""Claims that no store can grant, in the same words everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.errors import BackendRejected, ModeConflict
from leasehold.values import Mode

if TYPE_CHECKING:
    from leasehold.values import Claim

__all__ = ["check_kind", "fence_too_high"]


def check_kind(claim: Claim, mode: Mode, capacity: int, store: str) -> None:
    """Refuse a claim for a name that is in use as another kind of lock."""
    wanted, present = _kind(claim.mode, claim.capacity), _kind(mode, capacity)
    if wanted != present:
        raise ModeConflict(
            f"{claim.key!r} is in use as a {present}, and cannot be taken as a {wanted}; use one kind for one name",
            backend=store,
        )


def _kind(mode: Mode, capacity: int) -> str:
    return f"semaphore of {capacity}" if mode is Mode.PERMIT else "lock"


def fence_too_high(fence: int, store: str) -> BackendRejected:
    """The error for a fence that JSON and Lua would round."""
    return BackendRejected(
        f"the next fence of this name would be {fence}, which is above the largest number that is kept exact; "
        "look at the clock of this host",
        backend=store,
    )
