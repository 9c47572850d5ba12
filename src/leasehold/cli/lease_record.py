"""Until when the lease lasts, for programs that the command starts: `leasehold check` reads it, without the store.

The wrapper keeps the instant in a file in memory that is open in the wrapper alone; LEASEHOLD_LEASE has its path below
/proc. So the record ends with the wrapper, however that ends, and no file is left anywhere. Its name has the fence: a
process that later gets the wrapper's number has no file of that name. Systems without such files have no record, and
`check` asks the store.
"""

from __future__ import annotations

import os
from contextlib import suppress

__all__ = ["VARIABLE", "LeaseRecord", "Unreadable", "read_records"]

VARIABLE = "LEASEHOLD_LEASE"
SIZE = 32


class Unreadable(Exception):
    """A record is there, but this process may not read it."""


class LeaseRecord:
    """The wrapper's side: made when the lock was granted, updated with every renewal."""

    def __init__(self, fence: int) -> None:
        self._title = f"leasehold-{fence}"
        self._file: int | None = None
        if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):  # noqa: PTH112 - no pathlib: start-up cost
            with suppress(OSError):
                self._file = os.memfd_create(self._title)

    def environment(self) -> dict[str, str]:
        """The variable for the command; it lists the records of the wrappers around this one, too."""
        outer = os.environ.get(VARIABLE)
        if self._file is None:
            return {VARIABLE: outer} if outer else {}
        own = f"/proc/{os.getpid()}/fd/{self._file}={self._title}"
        return {VARIABLE: f"{outer} {own}" if outer else own}

    def lasts_until(self, instant: float) -> None:
        """The lease is held until then, on the clock of `watchdog.now`; 0 if it is lost."""
        if self._file is not None:
            os.pwrite(self._file, f"{instant:.6f}".ljust(SIZE).encode(), 0)

    def close(self) -> None:
        """The lock is given back."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def read_records() -> float | None:
    """The earliest end of all leases that this process runs under; 0 if one is over, None if there is no record."""
    text = os.environ.get(VARIABLE)
    return min(map(_read, text.split())) if text else None


def _read(record: str) -> float:
    path, _, title = record.partition("=")
    try:
        if not os.readlink(path).startswith(f"/memfd:{title} "):  # noqa: PTH115
            return 0.0
        with open(path, "rb") as file:  # noqa: PTH123
            return float(file.read(SIZE))
    except PermissionError:
        raise Unreadable from None
    except (OSError, ValueError):
        return 0.0
