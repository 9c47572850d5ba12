"""`Redlock` of pottery, on one node or on five, extended by its holder."""

from __future__ import annotations

import time
from contextlib import suppress
from importlib import import_module
from typing import Any

from verification.lab.adapters.careful import CarefulGrant, addresses
from verification.lab.adapters.redis_py import redis_client

__all__ = ["connect"]


class _Adapter:
    def __init__(self, url: str, name: str, ttl: float) -> None:
        self._pottery: Any = import_module("pottery")
        self._clients = [redis_client(address, ttl / 3) for address in addresses(url)]
        self._name = name
        self._ttl = ttl

    def acquire(self, timeout: float) -> CarefulGrant | None:
        lock = self._pottery.Redlock(
            key=self._name,
            masters=set(self._clients),
            auto_release_time=self._ttl,
            num_extensions=1000,
            raise_on_redis_errors=False,
        )
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            asked = time.monotonic()
            if lock.acquire(blocking=False):
                return CarefulGrant(self._ttl, asked, lambda: self._release(lock), lambda: self._extend(lock))
            time.sleep(0.02)
        return None

    def _extend(self, lock: Any) -> bool:
        with suppress(self._pottery.ExtendUnlockedLock):
            lock.extend()
            return True
        return False

    def _release(self, lock: Any) -> bool:
        with suppress(self._pottery.ReleaseUnlockedLock):
            lock.release()
            return True
        return False

    def close(self) -> None:
        for client in self._clients:
            client.close()


def connect(_: str, url: str, name: str, ttl: float) -> _Adapter:
    """One node or several."""
    return _Adapter(url, name, ttl)
