"""Finds out whether a call waits for a lock that its own process, or even its own thread or task, holds.

Only for messages, never for a decision: another thread may still release the lock, and the identity of a thread or
task that has ended is used again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leasehold._core.states import HELD
from leasehold.values import Mode

if TYPE_CHECKING:
    from leasehold._core.open_client import OpenClient
    from leasehold._face.lock_spec import LockSpec
    from leasehold.values import Holder

__all__ = ["OwnHold", "own_hold"]


class OwnHold(NamedTuple):
    """The holder in the way is this process."""

    itself: bool  # most likely the very thread or task that waits
    text: str


def own_hold(opened: OpenClient, spec: LockSpec, holder: Holder | None) -> OwnHold | None:
    """What is known of the holder in the way if it is this process; None if it is another."""
    us = spec.holder
    if holder is not None and (holder.host, holder.pid) != (us.host, us.pid):
        return None
    current = id(opened.runtime.current())
    for tenure in opened.keeper.tenures():
        theirs = tenure.grant.claim
        if (
            theirs.key != spec.key
            or tenure.state is not HELD
            or tenure.is_parked
            or not _exclude(theirs.mode, spec.mode)
        ):
            continue
        if tenure.taker == current:
            cure = "release it first" + (", or use reentrant=True" if theirs.mode is spec.mode else "")
            return OwnHold(itself=True, text=f"this process; if by the very thread or task that waits: {cure}")
    return None if holder is None else OwnHold(itself=False, text="this process")


def _exclude(one: Mode, other: Mode) -> bool:
    """Whether two holds of these modes exclude each other; permits do not."""
    return Mode.PERMIT not in (one, other) and Mode.EXCLUSIVE in (one, other)
