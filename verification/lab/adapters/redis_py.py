"""`Lock` of redis-py."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import LockNotOwnedError
from redis.retry import Retry

from verification.lab.adapters.careful import PAUSE, CarefulGrant, addresses

__all__ = ["connect", "redis_client"]


def redis_client(address: tuple[str, int], ttl: float) -> Any:
    """Without the retries that redis-py makes by itself: a repeated SET NX answers no for a lock that is ours."""
    host, port = address
    never = Retry(NoBackoff(), 0)
    return redis.Redis(host, port, socket_timeout=ttl, socket_connect_timeout=ttl, retry=never)


class _Adapter:
    def __init__(self, url: str, name: str, ttl: float) -> None:
        self._client = redis_client(addresses(url)[0], ttl)
        self._name = name
        self._ttl = ttl

    def acquire(self, timeout: float) -> CarefulGrant | None:
        lock = self._client.lock(self._name, timeout=self._ttl, sleep=PAUSE, thread_local=False)
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            asked = time.monotonic()
            if lock.acquire(blocking=False):
                return CarefulGrant(self._ttl, asked, lambda: _release(lock), lambda: _renew(lock, self._ttl))
            time.sleep(PAUSE)
        return None

    def close(self) -> None:
        self._client.close()


def _renew(lock: Any, ttl: float) -> bool:
    with suppress(LockNotOwnedError):
        return bool(lock.extend(ttl, replace_ttl=True))
    return False


def _release(lock: Any) -> bool:
    with suppress(LockNotOwnedError):
        lock.release()
        return True
    return False


def connect(_: str, url: str, name: str, ttl: float) -> _Adapter:
    """One server."""
    return _Adapter(url, name, ttl)
