"""A wall clock that can be set, for one process: a small library between the program and the system.

Only the time of day is shifted; clocks that never step are left alone. The library is built from `shifted_clock.c` when
the first test needs it. (libfaketime hangs Debian's redis-server and breaks the sleep of Python.)
"""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from pathlib import Path

from verification.lab import watcher
from verification.lab.mariadb import MariadbServer
from verification.lab.postgres import PostgresServer
from verification.lab.process import find_program
from verification.lab.redis import RedisServer

__all__ = ["ShiftedClock", "ShiftedMariadbServer", "ShiftedPostgresServer", "ShiftedRedisServer"]


@functools.cache
def _library() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="leasehold-clock-"))
    watcher.watch_folder(folder)
    folder.chmod(0o755)  # servers that run under another account load it too
    library = folder / "shifted_clock.so"
    source = Path(__file__).with_suffix(".c")
    compiler = find_program("gcc", "gcc")
    subprocess.run([compiler, "-O2", "-fPIC", "-shared", "-nostdlib", "-o", str(library), str(source)], check=True)
    return library


class ShiftedClock:
    """The clock of the processes that run with its environment."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._file.write_bytes(bytes(8))

    def set(self, seconds: float) -> None:
        """So far from the true time, from now on."""
        with self._file.open("r+b") as file:
            file.write(round(seconds * 1e6).to_bytes(8, "little", signed=True))

    def environment(self) -> dict[str, str]:
        """For a process that shall have this clock."""
        return {**os.environ, "LD_PRELOAD": str(_library()), "SHIFTED_CLOCK": str(self._file)}


class ShiftedRedisServer(RedisServer):
    """A server whose clock can be set."""

    def __init__(self, name: str = "shifted") -> None:
        super().__init__(name)
        self.clock = ShiftedClock(self.folder)

    def environment(self) -> dict[str, str] | None:
        """With the library in between."""
        return self.clock.environment()


class ShiftedPostgresServer(PostgresServer):
    """A server whose clock can be set, for all of its processes at once."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ShiftedClock(self.folder)

    def environment(self) -> dict[str, str] | None:
        """With the library in between."""
        return self.clock.environment()


class ShiftedMariadbServer(MariadbServer):
    """A server whose clock can be set."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ShiftedClock(self.folder)

    def environment(self) -> dict[str, str] | None:
        """With the library in between."""
        return self.clock.environment()
