"""Collects the events of all clients from one pipe into a file and into memory, on a thread of its own."""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import TYPE_CHECKING

from verification.lab.history import NEMESIS, Event, Kind, Pen

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["Recorder"]

FULL = 1 << 20  # the most that Linux gives a pipe without being asked twice


class Recorder:
    """The nemesis writes to the same pipe, so that the order of the lines is that of the writing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reading, self.pipe = os.pipe()
        self.pen = Pen(self.pipe, NEMESIS)
        self.events: list[Event] = []
        self._counts: Counter[Kind] = Counter()
        self._arrived = threading.Condition()
        self._thread = threading.Thread(target=self._collect, name="recorder", daemon=True)

    def start(self) -> None:
        """Collect from now on."""
        self._thread.start()

    def _collect(self) -> None:
        rest = b""
        with self._path.open("wb") as file:
            while chunk := os.read(self._reading, FULL):
                file.write(chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                arrived = [Event.from_json(line.decode()) for line in lines]
                with self._arrived:
                    self.events.extend(arrived)
                    self._counts.update(event.kind for event in arrived)
                    self._arrived.notify_all()

    def wait_for(self, condition: Callable[[list[Event]], bool], limit: float) -> bool:
        """Wait until the events so far satisfy a condition; False if they do not in time."""
        with self._arrived:
            return self._arrived.wait_for(lambda: condition(self.events), limit)

    def count(self, kind: Kind) -> int:
        """How many events of a kind there are so far."""
        return self._counts[kind]

    def holder(self) -> int | None:
        """The client that was granted last and has not begun to release, as far as the events say."""
        for event in reversed(self.events):
            if event.kind is Kind.RELEASE:
                return None
            if event.kind is Kind.GRANTED:
                return event.process
        return None

    def close(self) -> list[Event]:
        """After the clients have ended: all events, in the order of time."""
        os.close(self.pipe)
        self._thread.join()
        os.close(self._reading)
        return sorted(self.events, key=lambda event: event.t)
