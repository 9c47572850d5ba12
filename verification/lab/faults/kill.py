"""SIGKILL for clients, which are replaced, and for servers, which come back with what they had written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.faults import choose_client
from verification.lab.history import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.lab.faults import Scene

__all__ = ["disturb"]

BETWEEN = (0.3, 1.2)  # in ttls
DOWN = (0.05, 1.5)  # in ttls
SERVER_RATE = 0.4


def disturb(scene: Scene) -> Iterator[float]:
    """One after the other."""
    pen = scene.recorder.pen
    while True:
        yield scene.random.uniform(*BETWEEN) * scene.ttl
        victims = scene.stage.victims()
        if victims and scene.random.random() < SERVER_RATE:
            server = scene.random.choice(victims)
            pen.note(Kind.FAULT, detail=f"killed {server.name}")
            server.kill()
            try:
                yield scene.random.uniform(*DOWN) * scene.ttl
            finally:
                scene.stage.revive()
                pen.note(Kind.CALM, detail=f"killed {server.name}")
        else:
            process = choose_client(scene)
            pen.note(Kind.FAULT, value=process, detail="killed")
            scene.clients.kill(process)
            scene.clients.add()
            pen.note(Kind.CALM, value=process, detail="killed")
