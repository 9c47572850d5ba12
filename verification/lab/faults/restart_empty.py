"""A server is killed and comes back without what it had stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.history import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.lab.faults import Scene

__all__ = ["disturb"]


def disturb(scene: Scene) -> Iterator[float]:
    """Again and again."""
    pen = scene.recorder.pen
    while True:
        yield scene.random.uniform(0.5, 1.5) * scene.ttl
        pen.note(Kind.FAULT, detail="restarted empty")
        pen.note(Kind.CALM, detail=scene.stage.restart_empty())
