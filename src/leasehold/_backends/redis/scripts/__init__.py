"""The Lua scripts, as they are sent: each file with what it includes, and its digest."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

__all__ = ["Script", "script"]

_FOLDER = Path(__file__).parent
_INCLUDE = re.compile(r"^-- include (\w+\.lua)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


class Script:
    """One script: its text without comments, and the digest under which a server keeps it."""

    __slots__ = ("digest", "name", "text")

    def __init__(self, name: str, folder: Path = _FOLDER) -> None:
        self.name = name
        whole = _INCLUDE.sub(lambda found: _read(folder / found[1]), _read(folder / f"{name}.lua"))
        self.text = _COMMENT.sub("", whole).encode()
        self.digest = hashlib.sha1(self.text, usedforsecurity=False).hexdigest().encode()


@cache
def script(name: str) -> Script:
    """The script of this name."""
    return Script(name)


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8").rstrip("\n")
