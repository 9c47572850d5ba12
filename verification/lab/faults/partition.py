"""A client's connections are closed, and new ones refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.faults.cutting import cut_one_at_a_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.lab.faults import Scene

__all__ = ["disturb"]


def disturb(scene: Scene) -> Iterator[float]:
    """One client at a time."""
    yield from cut_one_at_a_time(scene, scene.wiring.refuse, "cut off")
