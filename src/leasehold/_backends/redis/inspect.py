"""The reply of the inspect script, and the stored form of a holder, as values that people can read."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from leasehold._backends.redis.calls import Call
from leasehold._backends.redis.scripts import script
from leasehold.kit.holder import holder_from_fields
from leasehold.kit.pauses import pause_from_json, pause_of_holder
from leasehold.values import Holder, Holding, LockState, Mode, Pause

if TYPE_CHECKING:
    from leasehold._backends.redis.keys import Names
    from leasehold._backends.redis.router import Router

__all__ = ["read_holder", "read_obstacle", "read_state", "read_states"]

FOREIGN = Holder("another program", 0)
SCAN_PAGE = 1000
STATES_AT_ONCE = 100  # so many names are read in one round trip, a millisecond or so of the server's time


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


def read_obstacle(stored: bytes, left_ms: int) -> tuple[Holder | None, Pause | None, float | None]:
    """What is in the way of a claim: a holder or a pause, and the seconds after which it may be over."""
    left = left_ms / 1000 if left_ms > 0 else None
    paused = pause_from_json(stored, left)
    if paused is not None:
        return None, paused, paused.expires_in
    return read_holder(stored), None, left


def read_state(key: str, reply: Any) -> LockState | None:
    """None for a name without holders and waiters."""
    kind, holders, waiters = reply
    if not holders and not waiters:
        return None
    entries = [holders[place : place + 8] for place in range(0, len(holders), 8)]
    pauses = [_pause(entry) for entry in entries if not entry[1]]
    entries = [entry for entry in entries if entry[1]]
    waiting = tuple(read_holder(stored) or FOREIGN for stored in waiters[1::2])
    if not entries and not waiting:
        return LockState(key, Mode.EXCLUSIVE, 1, (), (), pauses[0])
    first = (entries[0][1] if entries else waiters[0]).decode()
    mode = {"x": Mode.EXCLUSIVE, "s": Mode.SHARED, "p": Mode.PERMIT}[first]
    return LockState(key, mode, int(kind) or 1, tuple(map(_holding, entries)), waiting, next(iter(pauses), None))


async def read_states(router: Router, names: Names, prefix: str, timeout: float) -> list[LockState]:
    """Goes through all keys of the database, page by page; the server stays responsive."""
    found: set[str] = set()
    for node in await router.topology.all(router.wire):
        cursor: Any = b"0"
        while True:
            cursor, page = await router.command(
                node, "SCAN", cursor, "MATCH", names.pattern(prefix), "COUNT", SCAN_PAGE
            )
            keys = (names.key_of(text.decode(), prefix) for text in page)
            found.update(key for key in keys if key is not None)
            if cursor == b"0":
                break
    ordered = sorted(found)
    states: list[LockState] = []
    for place in range(0, len(ordered), STATES_AT_ONCE):
        some = ordered[place : place + STATES_AT_ONCE]
        calls = [Call.of(script("inspect"), names.keys(key), None) for key in some]
        for key, reply in zip(some, await router.execute_all(calls, timeout), strict=True):
            if isinstance(reply, Exception):
                raise reply
            state = read_state(key, reply)
            if state is not None:
                states.append(state)
    return states


def _pause(parts: list[bytes]) -> Pause:
    _, _, _, paused_us, left_ms, _, _, stored = parts
    return pause_of_holder(read_holder(stored) or FOREIGN, int(left_ms) / 1000, int(paused_us) / 1e6)


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
