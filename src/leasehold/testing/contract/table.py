"""The capabilities that each store must declare: no more, and no less. Declaring less is not a way to pass."""

from __future__ import annotations

from leasehold.values import Capability as Can

__all__ = ["REQUIRED"]

_EVERY_STORE = frozenset({Can.EXCLUSIVE, Can.FENCING, Can.INSPECT})
_FULL = _EVERY_STORE | {
    Can.SHARED,
    Can.PERMITS,
    Can.FIFO,
    Can.PUSH,
    Can.RECORD,
    Can.MIN_HOLD,
    Can.ABANDONED,
    Can.PAUSE,
}

_RANGES = _FULL | {Can.RANGES}

REQUIRED: dict[str, frozenset[Can]] = {
    "memory": _RANGES,
    "sqlite": _RANGES,
    "redis": _RANGES,
    "postgresql": _RANGES,
    "mysql": _RANGES,
    "nats": _RANGES,
    "redlock": _EVERY_STORE,
    "etcd": _FULL - {Can.ABANDONED, Can.PAUSE} | {Can.SESSION},
    "zookeeper": _EVERY_STORE | {Can.SHARED, Can.PERMITS, Can.FIFO, Can.PUSH, Can.SESSION},
    "postgresql session": _EVERY_STORE | {Can.SHARED, Can.SESSION},
    "mysql session": _EVERY_STORE | {Can.SHARED, Can.SESSION},
}
