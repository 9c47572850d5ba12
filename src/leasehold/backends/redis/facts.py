"""What the store keeps about a holder, for people: written as JSON, read back with forgiveness."""

from __future__ import annotations

import json
from functools import lru_cache

from leasehold.values import Holder

__all__ = ["read_holder", "write_holder"]


@lru_cache(1024)
def write_holder(holder: Holder) -> str:
    """ASCII, so that its length in bytes is its length."""
    return json.dumps([holder.host, holder.pid, holder.label, holder.reason], separators=(",", ":"))


@lru_cache(1024)
def read_holder(text: bytes) -> Holder | None:
    """None for what another program has left there."""
    try:
        host, pid, label, reason = json.loads(text)
        return Holder(str(host), int(pid), label, reason)
    except (ValueError, TypeError):
        return None
