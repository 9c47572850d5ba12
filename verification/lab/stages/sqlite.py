"""A file, on a small disk where that shall be full one day. There is no server, and no network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.small_disk import SmallDisk
from verification.lab.stages.base import Address, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["make"]


class SqliteStage(Stage):
    """See the module."""

    name = "sqlite"

    def __init__(self, fault: str, folder: Path) -> None:
        super().__init__(fault)
        self._folder = folder / "store"
        self._folder.mkdir()

    def make_fit(self) -> None:
        if self.fault == "disk full":
            self.disks = [SmallDisk(self._folder, 4)]
            self.disks[0].mount()

    def url(self, addresses: Sequence[Address]) -> str:
        assert not addresses, "a file has no address"
        return f"sqlite:///{self._folder / 'locks.db'}"


def make(fault: str, folder: Path) -> Stage:
    """One file."""
    return SqliteStage(fault, folder)
