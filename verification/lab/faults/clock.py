"""The wall clocks of clients and, where it can be done, of servers jump forwards and back. Monotonic clocks do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.history import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.lab.faults import Scene

__all__ = ["disturb"]

FAR = 3600.0  # of clients, whose wall clock must not matter at all
NEAR = (-3.0, 3.0)  # of servers, in ttls: enough to let every lease run out, or to keep it for long


def disturb(scene: Scene) -> Iterator[float]:
    """All clients together; one server at a time."""
    pen = scene.recorder.pen
    try:
        while True:
            yield scene.random.uniform(0.5, 1.0) * scene.ttl
            if scene.stage.clocks and scene.random.random() < 0.7:
                shift = scene.random.uniform(*NEAR) * scene.ttl
                scene.random.choice(list(scene.stage.clocks)).set(shift)
                pen.note(Kind.FAULT, detail=f"a server's clock is {shift:+.1f} s off")
            elif scene.client_clock is not None:
                shift = scene.random.choice([-FAR, 0.0, FAR])
                scene.client_clock.set(shift)
                pen.note(Kind.FAULT, detail=f"the clients' clock is {shift:+.0f} s off")
            yield scene.random.uniform(0.3, 1.5) * scene.ttl
            pen.note(Kind.CALM, detail="clocks")
    finally:
        for clock in [*scene.stage.clocks, *([scene.client_clock] if scene.client_clock else [])]:
            clock.set(0.0)
