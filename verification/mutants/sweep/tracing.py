"""Which lines of the library a test reaches, in this process, its threads, and the Pythons that it starts."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

__all__ = ["CHILDREN", "Lines", "write_child_hook"]

CHILDREN = "LEASEHOLD_SWEEP_LINES"  # names the folder where started Pythons write what they reach

# Written as it is reached, because many of these processes are killed.
_HOOK = """
import os, sys, threading

def _begin(folder, root):
    seen = set()
    file = os.open(f"{folder}/{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def line(frame, event, argument):
        place = (frame.f_code.co_filename, frame.f_lineno)
        if place not in seen:
            seen.add(place)
            try:
                os.write(file, f"{place[0][len(root):]}:{place[1]}\\n".encode())
            except OSError:
                pass
        return line

    def call(frame, event, argument):
        return line if frame.f_code.co_filename.startswith(root) else None

    threading.settrace(call)
    sys.settrace(call)

if os.environ.get("LEASEHOLD_SWEEP_LINES"):
    _begin(os.environ["LEASEHOLD_SWEEP_LINES"], ROOT)
"""


def write_child_hook(folder: Path, root: str) -> None:
    """A module that each Python loads first that has this folder on its path."""
    (folder / "sitecustomize.py").write_text(f"ROOT = {root!r}\n{_HOOK}")


class Lines:
    """The lines under a folder that are reached from `begin` to `end`."""

    def __init__(self, root: str, scratch: Path) -> None:
        self._root, self._scratch = root, scratch
        self._seen: set[tuple[str, int]] = set()

    def begin(self) -> None:
        self._seen = set()
        for old in self._scratch.iterdir():
            old.unlink()
        os.environ[CHILDREN] = str(self._scratch)
        threading.settrace(self._call)
        sys.settrace(self._call)

    def end(self) -> dict[str, list[int]]:
        """Lines by file."""
        sys.settrace(None)
        threading.settrace(None)
        del os.environ[CHILDREN]
        found: dict[str, set[int]] = {}
        for file, line in list(self._seen):
            found.setdefault(file[len(self._root) :], set()).add(line)
        for written in self._scratch.iterdir():
            for text in written.read_text().splitlines():
                file, _, number = text.rpartition(":")
                if number.isdigit():
                    found.setdefault(file, set()).add(int(number))
        return {file: sorted(lines) for file, lines in found.items()}

    def _call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(self._root) else None

    def _line(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        self._seen.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line
