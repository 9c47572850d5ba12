"""`Lock` of kazoo. Its holder listens to the state of the connection: a session in doubt is a lock in doubt."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from verification.lab.adapters import FOR_EVER

__all__ = ["connect"]


class _Grant:
    fence: int | None = None
    lease: Any = None

    def __init__(self, adapter: _Adapter, lock: Any) -> None:
        self._adapter = adapter
        self._doubts = adapter.doubts
        self._lock = lock

    def remaining(self) -> float:
        """Until the listener has said that the connection is suspended or lost."""
        return FOR_EVER if self._adapter.doubts == self._doubts else 0.0

    def tick(self) -> None:
        """The session is kept by the client."""

    def release(self) -> bool:
        return bool(self._lock.release())


class _Adapter:
    def __init__(self, url: str, name: str, ttl: float) -> None:
        kazoo: Any = import_module("kazoo.client")
        self._timeout_error: type[Exception] = import_module("kazoo.exceptions").LockTimeout
        self._connected = kazoo.KazooState.CONNECTED
        self.doubts = 0
        self._client = kazoo.KazooClient(urlsplit(url).netloc, timeout=ttl)
        self._client.add_listener(self._listen)
        self._client.start(timeout=20)
        self._name = name

    def _listen(self, state: object) -> None:
        if state != self._connected:
            self.doubts += 1

    def acquire(self, timeout: float) -> _Grant | None:
        lock = self._client.Lock(f"/peers/{self._name}", "lab")
        before = self.doubts
        with suppress(self._timeout_error):
            if lock.acquire(timeout=timeout):
                grant = _Grant(self, lock)
                grant._doubts = before
                return grant
        return None

    def close(self) -> None:
        self._client.stop()
        self._client.close()


def connect(_: str, url: str, name: str, ttl: float) -> _Adapter:
    """An ensemble."""
    return _Adapter(url, name, ttl)
