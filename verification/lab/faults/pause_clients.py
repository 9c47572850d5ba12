"""Clients are stopped as a whole: where they stop themselves, between the read and the write, and at random instants.

One that is stopped is woken up shortly after another client was granted the lock, while that one thinks: this is when a
late write does harm. If nobody takes over it is woken up anyway.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from verification.lab.history import Kind, now

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.lab.faults import Scene
    from verification.lab.history import Event

__all__ = ["disturb"]

LOOK = 0.005
WAKE_WITHIN = 0.03  # of the next grant
LONGEST = 3.0  # in ttls
RANDOM_EVERY = (0.5, 1.5)  # in ttls


def disturb(scene: Scene) -> Iterator[float]:
    """Stop and wake."""
    pauses = _Pauses(scene)
    try:
        while True:
            pauses.step()
            yield LOOK
    finally:
        pauses.wake_all()


class _Pauses:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._read = 0
        self._wake: dict[int, float] = {}  # when each stopped process is woken up
        self._next_random = now() + scene.ttl

    def step(self) -> None:
        events = self._scene.recorder.events
        while self._read < len(events):
            self._see(events[self._read])
            self._read += 1
        instant = now()
        for process in [process for process, when in self._wake.items() if when <= instant]:
            self._continue(process)
        if instant >= self._next_random:
            self._next_random = instant + self._scene.random.uniform(*RANDOM_EVERY) * self._scene.ttl
            self._stop_one()

    def _see(self, event: Event) -> None:
        clients = self._scene.clients
        if event.kind is Kind.STOPPING:
            process = clients.process_of(event.process)
            self._wake.setdefault(process, event.t + LONGEST * self._scene.ttl)
            self._scene.recorder.pen.note(Kind.FAULT, t=event.t, value=process, detail="paused")
        elif event.kind is Kind.GRANTED:
            soon = now() + self._scene.random.uniform(0, WAKE_WITHIN)
            self._wake = {process: min(when, soon) for process, when in self._wake.items()}

    def _stop_one(self) -> None:
        running = list(self._scene.clients.running)
        free = [process for process in running if process not in self._wake]
        if not free or len(self._wake) > len(running) // 2:
            return
        process = self._scene.random.choice(free)
        self._scene.clients.signal(process, signal.SIGSTOP)
        self._scene.recorder.pen.note(Kind.FAULT, value=process, detail="paused")
        self._wake[process] = now() + self._scene.random.uniform(0.3, LONGEST) * self._scene.ttl

    def _continue(self, process: int) -> None:
        del self._wake[process]
        self._scene.recorder.pen.note(Kind.CALM, value=process, detail="paused")
        self._scene.clients.signal(process, signal.SIGCONT)

    def wake_all(self) -> None:
        for process in list(self._wake):
            self._continue(process)
