"""A folder with little room, which can be filled and emptied: a file system in memory over it. It needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING

from verification.lab import watcher
from verification.lab.process import find_program

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["SmallDisk"]

BLOCK = 1024 * 1024


class SmallDisk:
    """`folder` keeps what it has; it must not be in use while the disk is mounted."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self._folder = folder
        self._megabytes = megabytes
        self._filler = folder / "filler"

    def mount(self) -> None:
        """Put the folder on a disk of its own."""
        if os.geteuid() != 0:
            raise RuntimeError("a small disk needs root: run the lab as root")
        facts = self._folder.stat()
        with tempfile.TemporaryDirectory(dir=self._folder.parent) as aside:
            subprocess.run(["cp", "-a", f"{self._folder}/.", aside], check=True)
            options = f"size={self._megabytes}m,mode=700,uid={facts.st_uid},gid={facts.st_gid}"
            command = [find_program("mount", "mount"), "-t", "tmpfs", "-o", options, "tmpfs", str(self._folder)]
            watcher.watch_command(self._removal())
            subprocess.run(command, check=True)
            subprocess.run(["cp", "-a", f"{aside}/.", str(self._folder)], check=True)

    def fill(self) -> None:
        """Until nothing more can be written."""
        size = BLOCK
        with self._filler.open("ab", buffering=0) as file:
            while size:
                try:
                    if file.write(bytes(size)) < size:
                        size //= 2
                except OSError:
                    size //= 2

    def empty(self) -> None:
        """Give the room back."""
        self._filler.unlink(missing_ok=True)

    def remove(self) -> None:
        """After the server has ended; its files go with it."""
        with suppress(subprocess.CalledProcessError):
            subprocess.run(self._removal(), check=True)
            watcher.forget_command(self._removal())
        shutil.rmtree(self._folder, ignore_errors=True)

    def _removal(self) -> list[str]:
        return [find_program("umount", "mount"), "-l", str(self._folder)]
