"""What the inspect script answers, as a state that people can read."""

from __future__ import annotations

from typing import Any

from leasehold.backends.redis.facts import read_holder
from leasehold.values import Holder, Holding, LockState, Mode

__all__ = ["read_state"]

FOREIGN = Holder("another program", 0)


def read_state(key: str, reply: Any) -> LockState | None:
    """None when nobody holds and nobody waits."""
    kind, holders, waiters = reply
    if not holders and not waiters:
        return None
    capacity = int(kind)
    holdings = tuple(_holding(holders[place : place + 8]) for place in range(0, len(holders), 8))
    waiting = tuple(read_holder(facts) or FOREIGN for facts in waiters[1::2])
    first = (holders[1] if holders else waiters[0]).decode()
    mode = {"x": Mode.EXCLUSIVE, "s": Mode.SHARED, "p": Mode.PERMIT}[first]
    return LockState(key, mode, capacity or 1, holdings, waiting)


def _holding(parts: list[bytes]) -> Holding:
    _, _, fence, held_us, left_ms, broken, cooling, facts = parts
    return Holding(
        holder=read_holder(facts) or FOREIGN,
        fence=int(fence),
        held_for=int(held_us) / 1e6,
        expires_in=max(0, int(left_ms)) / 1000,
        broken=broken.decode(errors="replace") or None,
        cooling=cooling == b"1",
    )
