"""What the three faults of the network have in common: one client after the other, for longer or shorter than a ttl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.faults import choose_client
from verification.lab.history import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from verification.lab.faults import Scene

__all__ = ["cut_one_at_a_time"]

LONG = (0.3, 2.5)  # in ttls
CALM = (0.3, 1.0)


def cut_one_at_a_time(scene: Scene, cut: Callable[[int], None], what: str) -> Iterator[float]:
    """Cut, wait, heal."""
    pen = scene.recorder.pen
    while True:
        yield scene.random.uniform(*CALM) * scene.ttl
        client = choose_client(scene)
        cut(client)
        pen.note(Kind.FAULT, value=client, detail=what)  # after it: from here on nothing is confirmed
        try:
            yield scene.random.uniform(*LONG) * scene.ttl
        finally:
            pen.note(Kind.CALM, value=client, detail=what)
            scene.wiring.heal(client)
