"""Whether what a call waits for is held by this very process, or even by the thread or task that waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leasehold._core.states import HELD
from leasehold.values import Mode

if TYPE_CHECKING:
    from leasehold._core.open_client import OpenClient, Wish
    from leasehold.values import Holder

__all__ = ["OwnHold", "own_hold"]


class OwnHold(NamedTuple):
    """The holder in the way is this process."""

    itself: bool  # most likely the very thread or task that asks; the identity of one that has ended is used again
    text: str


def own_hold(opened: OpenClient, wish: Wish, holder: Holder | None) -> OwnHold | None:
    """What is known of a holder in the way that is this process; None if it is another.

    Only for people: another thread may still release what this one waits for.
    """
    us = wish.holder
    if holder is not None and (holder.host, holder.pid) != (us.host, us.pid):
        return None
    current = id(opened.runtime.current())
    for tenure in opened.keeper.tenures():
        theirs = tenure.grant.claim
        if theirs.key != wish.key or tenure.state is not HELD or not _exclude(theirs.mode, wish.mode):
            continue
        if tenure.taker == current:
            cure = "release it first" + (", or use reentrant=True" if theirs.mode is wish.mode else "")
            return OwnHold(itself=True, text=f"this process; if by the very thread or task that asks: {cure}")
    return None if holder is None else OwnHold(itself=False, text="this process")


def _exclude(one: Mode, other: Mode) -> bool:
    """Whether one hold of each kind cannot be had together; of permits there may be more."""
    return Mode.PERMIT not in (one, other) and Mode.EXCLUSIVE in (one, other)
