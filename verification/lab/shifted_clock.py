"""A wall clock that can be set, for one process: libfaketime between the program and the system.

Only the time of day is shifted; clocks that never step are left alone. Debian's own redis-server hangs under it (its
allocator asks for the time too early), so Redlock's shifted node is a Valkey.
"""

from __future__ import annotations

import os
from pathlib import Path

from verification.lab.redis import RedisServer, valkey_program

__all__ = ["ShiftedRedisServer", "shifted_environment"]

FOLDERS = ("/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime", "/usr/lib/faketime")


def shifted_environment(timestamp: Path) -> dict[str, str]:
    """The environment of a process whose clock the file tells: `+3600` is an hour ahead; it may change any time."""
    library = next((path for folder in FOLDERS if (path := Path(folder) / "libfaketimeMT.so.1").exists()), None)
    if library is None:
        raise RuntimeError("libfaketime is not installed; on Debian and Ubuntu: apt install faketime")
    return {
        **os.environ,
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(timestamp),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


class ShiftedRedisServer(RedisServer):
    """A Valkey whose clock can be set."""

    def __init__(self, name: str = "shifted", seconds: float = 0.0) -> None:
        super().__init__(name, program=valkey_program())
        self.set_clock(seconds)

    def set_clock(self, seconds: float) -> None:
        """So far from the true time, from now on."""
        draft = self.folder / "clock.new"
        draft.write_text(f"{seconds:+g}\n")
        draft.replace(self.folder / "clock")

    def environment(self) -> dict[str, str] | None:
        """With the library in between."""
        return shifted_environment(self.folder / "clock")
