"""The Lua scripts of the Redlock store, as they are sent: each file with what it includes, and its digest."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from leasehold._backends.redis.scripts import Script

__all__ = ["NAMES", "script"]

_FOLDER = Path(__file__).parent
NAMES = ("break", "greet", "look", "raise_fence", "release", "renew", "repair", "vote", "withdraw")


@cache
def script(name: str) -> Script:
    """The script of this name."""
    return Script(name, _FOLDER)
