"""The same two verbs over ours and over other people's file locks, so that one loop can drive each of them.

A peer is imported when it is used; one that is not installed is reported, never left out.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import leasehold

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["KINDS", "OURS", "FileLock", "make", "why_missing"]

PATIENCE = 60.0
OURS = "leasehold"


class FileLock(Protocol):
    """Something to take, and to give back."""

    def take(self) -> None:
        """Wait for it."""

    def give(self) -> None:
        """Give it back."""


class Ours:
    """leasehold on SQLite."""

    def __init__(self, path: Path) -> None:
        self._client = leasehold.connect(f"sqlite:///{path}")
        self._lock = self._client.lock("bench")
        self._lease: leasehold.Lease | None = None

    def take(self) -> None:
        self._lease = self._lock.acquire(timeout=PATIENCE)

    def give(self) -> None:
        if self._lease is not None:
            self._lease.release()


class Kernel:
    """The floor: flock(2), waiting in the kernel. No time limit, no fence, no lease."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT)

    def take(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def give(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)


class Peer:
    """A lock of another library with the two methods that most of them have."""

    def __init__(self, lock: Any) -> None:
        self.take = lock.acquire
        self.give = lock.release


class Command:
    """flock(1) around a command that does nothing: what a shell script would do."""

    def __init__(self, path: Path) -> None:
        self._command = ["flock", str(path), "true"]

    def take(self) -> None:
        subprocess.run(self._command, check=True)

    def give(self) -> None:
        """It was given back when the command ended."""


def _filelock(path: Path) -> FileLock:
    return Peer(import_module("filelock").FileLock(path))


def _fasteners(path: Path) -> FileLock:
    return Peer(import_module("fasteners").InterProcessLock(path))


def _portalocker(path: Path) -> FileLock:
    return Peer(import_module("portalocker").Lock(str(path), timeout=PATIENCE))


KINDS: dict[str, Callable[[Path], FileLock]] = {
    OURS: Ours,
    "flock(2)": Kernel,
    "filelock": _filelock,
    "fasteners": _fasteners,
    "portalocker": _portalocker,
    "flock(1)": Command,
}


def make(kind: str, path: Path) -> FileLock:
    """A lock of this kind on this file."""
    return KINDS[kind](path)


def why_missing(kind: str) -> str:
    """Why this kind cannot run here; empty if it can."""
    if kind in (OURS, "flock(2)"):
        return ""
    is_there = shutil.which("flock") if kind == "flock(1)" else find_spec(kind)
    return "" if is_there else "not installed"
