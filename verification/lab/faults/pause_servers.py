"""A server is stopped without being ended: it keeps its connections and does not answer, then goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.history import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.lab.faults import Scene

__all__ = ["disturb"]

LONG = (0.2, 2.5)  # in ttls
CALM = (0.5, 1.5)


def disturb(scene: Scene) -> Iterator[float]:
    """One at a time."""
    pen = scene.recorder.pen
    while True:
        yield scene.random.uniform(*CALM) * scene.ttl
        server = scene.random.choice(scene.stage.victims())
        pen.note(Kind.FAULT, detail=f"paused {server.name}")
        server.pause()
        try:
            yield scene.random.uniform(*LONG) * scene.ttl
        finally:
            server.resume()
            pen.note(Kind.CALM, detail=f"paused {server.name}")
