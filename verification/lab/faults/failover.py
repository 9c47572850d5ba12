"""Another server becomes the primary or the leader, while the old one is gone; then it comes back as a follower."""

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
        yield scene.random.uniform(1.0, 2.0) * scene.ttl
        pen.note(Kind.FAULT, detail="failover")
        try:
            detail = scene.stage.fail_over()
        finally:
            scene.stage.revive()
        pen.note(Kind.CALM, detail=detail)
