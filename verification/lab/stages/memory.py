"""The memory of one process: its clients are threads of that process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.stages.base import Address, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["make"]


class MemoryStage(Stage):
    """See the module."""

    name = "memory"
    threads = 4

    def url(self, addresses: Sequence[Address]) -> str:
        assert not addresses, "memory has no address"
        return "memory://lab"

    def held(self) -> int:
        """It ended with its process."""
        return 0


def make(fault: str, _: Path) -> Stage:
    """Nothing to start."""
    return MemoryStage(fault)
