"""Requests reach the server and are carried out, but their answers do not come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.faults.cutting import cut_one_at_a_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.lab.faults import Scene

__all__ = ["disturb"]


def disturb(scene: Scene) -> Iterator[float]:
    """One client at a time."""
    yield from cut_one_at_a_time(scene, lambda client: scene.wiring.lose_replies(client, scene.random), "replies lost")
