"""redlock-py, on one node or on five. It cannot renew; the validity that it counted is the holder's deadline."""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

from verification.lab.adapters.careful import CarefulGrant, addresses, until_granted
from verification.lab.adapters.redis_py import redis_client

__all__ = ["connect"]


class _Adapter:
    def __init__(self, url: str, name: str, ttl: float) -> None:
        redlock: Any = import_module("redlock")
        self._clients = [redis_client(address, ttl / 3) for address in addresses(url)]
        self._manager = redlock.Redlock(self._clients, retry_count=1, retry_delay=0.001)
        self._failure = redlock.MultipleRedlockException
        self._name = name
        self._ttl = ttl

    def acquire(self, timeout: float) -> CarefulGrant | None:
        return until_granted(self._attempt, timeout)  # type: ignore[no-any-return] # a grant, or None

    def _attempt(self) -> CarefulGrant | None:
        asked = time.monotonic()
        try:
            held = self._manager.lock(self._name, round(self._ttl * 1000))
        except self._failure:  # a minority did not answer: it raises although the lock was granted
            return None
        if not held:
            return None
        unlock = self._manager.unlock  # it does not say whether that freed anything
        return CarefulGrant(held.validity / 1000, asked, lambda: unlock(held) is not None)

    def close(self) -> None:
        for client in self._clients:
            client.close()


def connect(_: str, url: str, name: str, ttl: float) -> _Adapter:
    """One node or several."""
    return _Adapter(url, name, ttl)
