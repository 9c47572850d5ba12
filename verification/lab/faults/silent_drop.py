"""What a client sends vanishes, and so does what is sent to it: no error, no end of the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.faults.cutting import cut_one_at_a_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.lab.faults import Scene

__all__ = ["disturb"]


def disturb(scene: Scene) -> Iterator[float]:
    """One client at a time."""
    yield from cut_one_at_a_time(scene, scene.wiring.drop, "cut off silently")
