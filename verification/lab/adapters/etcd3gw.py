"""`Lock` of etcd3gw. It takes the address of one member; a lease that was made for a failed try is revoked."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from importlib import import_module
from typing import Any

from verification.lab.adapters.careful import CarefulGrant, addresses, until_granted

__all__ = ["connect"]


class _Adapter:
    def __init__(self, url: str, name: str, ttl: float) -> None:
        host, port = addresses(url)[0]
        self._client: Any = import_module("etcd3gw").client(host=host, port=port, timeout=ttl, api_path="/v3/")
        self._name = name
        self._ttl = max(1, math.ceil(ttl))

    def acquire(self, timeout: float) -> CarefulGrant | None:
        return until_granted(self._attempt, timeout)  # type: ignore[no-any-return] # a grant, or None

    def _attempt(self) -> CarefulGrant | None:
        lock = self._client.lock(self._name, ttl=self._ttl)
        asked = time.monotonic()
        if lock.acquire():
            return CarefulGrant(self._ttl, asked, lambda: _release(lock), lambda: lock.refresh() > 0)
        with suppress(Exception):
            lock.lease.revoke()
        return None

    def close(self) -> None:
        """It keeps no connection that could be closed."""


def _release(lock: Any) -> bool:
    freed = bool(lock.release())
    with suppress(Exception):
        lock.lease.revoke()
    return freed


def connect(_: str, url: str, name: str, ttl: float) -> _Adapter:
    """The first member."""
    return _Adapter(url, name, ttl)
