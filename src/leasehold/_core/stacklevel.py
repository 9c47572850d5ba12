"""The `stacklevel` of a warning: it belongs to the line of the program that called the library."""

from __future__ import annotations

import sys

__all__ = ["user_stacklevel"]


def user_stacklevel() -> int:
    """The `stacklevel` with which a warning of the calling function names the first line outside this library."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 - `inspect` is slow to load
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "leasehold":
        level, frame = level + 1, frame.f_back
    return level
