"""Ours."""

from __future__ import annotations

import leasehold

__all__ = ["connect"]


class _Grant:
    def __init__(self, lease: leasehold.Lease) -> None:
        self.lease = lease
        self.fence: int | None = lease.fence

    def remaining(self) -> float:
        return self.lease.remaining()

    def tick(self) -> None:
        """It renews itself."""

    def release(self) -> bool:
        return self.lease.release()


class _Adapter:
    def __init__(self, url: str, name: str, ttl: float) -> None:
        self._client = leasehold.connect(url)
        self._lock = self._client.lock(name, ttl=ttl)

    def acquire(self, timeout: float) -> _Grant | None:
        try:
            return _Grant(self._lock.acquire(timeout))
        except leasehold.AcquireTimeout:
            return None

    def close(self) -> None:
        self._client.close()


def connect(_: str, url: str, name: str, ttl: float) -> _Adapter:
    """By the URL of the store."""
    return _Adapter(url, name, ttl)
