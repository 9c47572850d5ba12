"""The reply of the inspect script, and the stored form of a holder, as values that people can read."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from leasehold.kit.holder import holder_from_fields
from leasehold.values import Holder, Holding, LockState, Mode

__all__ = ["read_holder", "read_state"]

FOREIGN = Holder("another program", 0)


@lru_cache(1024)
def read_holder(stored: bytes) -> Holder | None:
    """None for a text of another program. Earlier clients wrote a list: host, pid, label, reason."""
    try:
        value = json.loads(stored)
        if isinstance(value, list):
            host, pid, label, reason = value
            value = {"host": host, "pid": pid, "label": label, "reason": reason}
    except ValueError:
        return None
    return holder_from_fields(value)


def read_state(key: str, reply: Any) -> LockState | None:
    """None for a name without holders and waiters."""
    kind, holders, waiters = reply
    if not holders and not waiters:
        return None
    capacity = int(kind)
    holdings = tuple(_holding(holders[place : place + 8]) for place in range(0, len(holders), 8))
    waiting = tuple(read_holder(stored) or FOREIGN for stored in waiters[1::2])
    first = (holders[1] if holders else waiters[0]).decode()
    mode = {"x": Mode.EXCLUSIVE, "s": Mode.SHARED, "p": Mode.PERMIT}[first]
    return LockState(key, mode, capacity or 1, holdings, waiting)


def _holding(parts: list[bytes]) -> Holding:
    _, _, fence, held_us, left_ms, broken, cooling, stored = parts
    return Holding(
        holder=read_holder(stored) or FOREIGN,
        fence=int(fence),
        held_for=int(held_us) / 1e6,
        expires_in=max(0, int(left_ms)) / 1000,
        broken=broken.decode(errors="replace") or None,
        cooling=cooling == b"1",
    )
