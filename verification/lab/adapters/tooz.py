"""tooz, with its heartbeat thread, over Redis or ZooKeeper."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

from verification.lab.adapters import FOR_EVER
from verification.lab.adapters.careful import until_granted

__all__ = ["connect"]


class _Grant:
    fence: int | None = None
    lease: Any = None

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def remaining(self) -> float:
        return FOR_EVER if self._lock.acquired else 0.0

    def tick(self) -> None:
        """Its heartbeat renews."""

    def release(self) -> bool:
        return bool(self._lock.release())


class _Adapter:
    def __init__(self, store: str, url: str, name: str, ttl: float) -> None:
        coordination: Any = import_module("tooz.coordination")
        netloc = urlsplit(url).netloc
        where = f"redis://{netloc}?timeout={ttl:g}" if store == "redis" else f"kazoo://{netloc}?timeout={ttl:g}"
        self._coordinator = coordination.get_coordinator(where, token_hex(8).encode())
        self._coordinator.start(start_heart=True)
        self._lock = self._coordinator.get_lock(name.encode())

    def acquire(self, timeout: float) -> _Grant | None:
        granted = until_granted(lambda: self._lock.acquire(blocking=False), timeout)
        return _Grant(self._lock) if granted else None

    def close(self) -> None:
        with suppress(Exception):
            self._coordinator.stop()


def connect(store: str, url: str, name: str, ttl: float) -> _Adapter:
    """By the driver of the store."""
    return _Adapter(store, url, name, ttl)
