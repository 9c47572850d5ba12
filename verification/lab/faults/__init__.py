"""The disturbances, one file each: a generator that does something, yields how long to wait, and undoes it.

It is run for as long as a cell lasts and is closed then; whatever it has done must be undone in a `finally`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from verification.lab.clients import Clients
    from verification.lab.recorder import Recorder
    from verification.lab.shifted_clock import ShiftedClock
    from verification.lab.stages.base import Stage
    from verification.lab.wiring import Wiring

__all__ = ["FAULTS", "NETWORK", "Scene", "choose_client", "disturb"]

FAULTS = (
    "none",
    "pause clients",
    "pause servers",
    "kill",
    "failover",
    "partition",
    "silent drop",
    "lost replies",
    "clock",
    "restart empty",
    "disk full",
)
HOLDER_RATE = 0.7
NETWORK = ("partition", "silent drop", "lost replies")


class Scene(Protocol):
    """What a disturbance can reach."""

    stage: Stage
    clients: Clients
    wiring: Wiring
    recorder: Recorder
    random: Random
    client_clock: ShiftedClock | None
    ttl: float


def choose_client(scene: Scene) -> int:
    """A process of clients: mostly the one that holds the lock, for there it hurts."""
    holder = scene.recorder.holder()
    if holder is not None and scene.random.random() < HOLDER_RATE:
        process = scene.clients.process_of(holder)
        if process in scene.clients.running:
            return process
    return scene.random.choice(list(scene.clients.running))


def disturb(fault: str, scene: Scene) -> Iterator[float]:
    """The generator of a fault."""
    generator: Iterator[float] = import_module(f"verification.lab.faults.{fault.replace(' ', '_')}").disturb(scene)
    return generator
