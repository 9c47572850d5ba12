"""`FileLock`: a lock of the operating system beside the database, for processes of one host. It cannot be lost."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from verification.lab.adapters import FOR_EVER

__all__ = ["connect"]


class _Grant:
    fence: int | None = None
    lease: Any = None

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def remaining(self) -> float:
        return FOR_EVER

    def tick(self) -> None:
        """Nothing to renew."""

    def release(self) -> bool:
        self._lock.release()
        return True


class _Adapter:
    def __init__(self, url: str, name: str) -> None:
        filelock: Any = import_module("filelock")
        self._timeout_error: type[Exception] = filelock.Timeout
        self._lock = filelock.FileLock(f"{url.removeprefix('sqlite://')}.{name}.lock", poll_interval=0.02)

    def acquire(self, timeout: float) -> _Grant | None:
        try:
            self._lock.acquire(timeout=timeout)
        except self._timeout_error:
            return None
        return _Grant(self._lock)

    def close(self) -> None:
        """Released already."""


def connect(_: str, url: str, name: str, ttl: float) -> _Adapter:
    """A file of its own."""
    del ttl  # it needs none
    return _Adapter(url, name)
