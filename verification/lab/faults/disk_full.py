"""There is no room on the disk of the store for a while. A server that ended for want of it is started again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.history import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.lab.faults import Scene

__all__ = ["disturb"]


def disturb(scene: Scene) -> Iterator[float]:
    """Fill, wait, empty."""
    pen = scene.recorder.pen
    while True:
        yield scene.random.uniform(0.5, 1.0) * scene.ttl
        disk = scene.random.choice(scene.stage.disks)
        pen.note(Kind.FAULT, detail="disk full")
        disk.fill()
        try:
            yield scene.random.uniform(0.5, 2.0) * scene.ttl
        finally:
            disk.empty()
            scene.stage.revive()
            pen.note(Kind.CALM, detail="disk full")
