"""The host's clocks, which are the store's: boot time for leases, wall time for fences.

Every client of a lock file runs on the same host, so the boot clock is one clock for all of them: it never steps and
runs on in suspend. It starts again with each boot, so a lease is only meaningful together with the boot it was made in.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Protocol

__all__ = ["Host", "ThisHost"]

BOOT_ID = "/proc/sys/kernel/random/boot_id"
TIME_NAMESPACE = "/proc/self/timens_offsets"


class Host(Protocol):
    """Where the lock file lives."""

    @property
    def boot(self) -> str:
        """Which boot this is; empty where the system does not say."""

    def now(self) -> float:
        """Seconds since the boot, suspend included."""

    def wall(self) -> float:
        """Seconds since 1970."""


class ThisHost:
    """The host that runs this program."""

    def __init__(self) -> None:
        self._clock_id: int | None = None
        self._shift = 0.0
        if hasattr(time, "CLOCK_BOOTTIME"):
            self._clock_id = time.CLOCK_BOOTTIME
            self._shift = _namespace_offset(TIME_NAMESPACE)
        elif sys.platform == "darwin":
            self._clock_id = time.CLOCK_MONOTONIC  # runs on in sleep there
        self.boot = _boot_id()
        if self._clock_id is not None and not self._shift:  # one call less, on the path of every request
            self.now = partial(time.clock_gettime, self._clock_id)  # type: ignore[method-assign]

    def now(self) -> float:
        """Seconds since the boot of the real host, also inside a container that was given a time of its own."""
        if self._clock_id is None:
            return time.monotonic()
        return time.clock_gettime(self._clock_id) - self._shift

    def wall(self) -> float:
        """Seconds since 1970."""
        return time.time()


def _boot_id() -> str:
    try:
        return _text_of(BOOT_ID).strip()
    except OSError:
        return ""  # then only instants that cannot be of this boot give an old lease away


def _namespace_offset(path: str) -> float:
    """How far this process' boot clock is moved against the host's, so that containers agree on the time."""
    try:
        lines = _text_of(path).splitlines()
    except OSError:
        return 0.0
    for words in map(str.split, lines):
        if len(words) == 3 and words[0] == "boottime":
            return int(words[1]) + int(words[2]) / 1e9
    return 0.0


def _text_of(path: str) -> str:
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib takes longer to load than all of this
        return file.read()
