"""python-redis-lock, with its renewal thread. It has no deadline that a holder could ask for."""

from __future__ import annotations

import math
from contextlib import suppress
from importlib import import_module
from typing import Any

from verification.lab.adapters import FOR_EVER
from verification.lab.adapters.careful import addresses
from verification.lab.adapters.redis_py import redis_client

__all__ = ["connect"]


redis_lock: Any = import_module("redis_lock")  # it has no types


class _Grant:
    fence: int | None = None
    lease: Any = None

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def remaining(self) -> float:
        """It says nothing until the release."""
        return FOR_EVER

    def tick(self) -> None:
        """It renews itself."""

    def release(self) -> bool:
        with suppress(redis_lock.NotAcquired):
            self._lock.release()
            return True
        return False


class _Adapter:
    def __init__(self, url: str, name: str, ttl: float) -> None:
        self._client = redis_client(addresses(url)[0], 5 * ttl)  # it waits in one blocking command
        self._name = name
        self._ttl = max(1, math.ceil(ttl))

    def acquire(self, timeout: float) -> _Grant | None:
        lock = redis_lock.Lock(self._client, self._name, expire=self._ttl, auto_renewal=True)
        return _Grant(lock) if lock.acquire(timeout=max(1, round(timeout))) else None

    def close(self) -> None:
        self._client.close()


def connect(_: str, url: str, name: str, ttl: float) -> _Adapter:
    """One server."""
    return _Adapter(url, name, ttl)
