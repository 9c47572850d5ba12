"""A call that waits: what it asks of the store meanwhile."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import leasehold
from leasehold._backends.memory import MemoryBackend, MemoryStore
from tests.waiting import eventually

if TYPE_CHECKING:
    from leasehold.spi import Backend, Place, Runtime


class CountedBackend(MemoryBackend):
    """Notes every question of a waiter."""

    def __init__(self, store: CountedStore, runtime: Runtime) -> None:
        super().__init__(store.memory, runtime)
        self._notes = store.turns

    async def turn(self, place: Place, *arguments: Any) -> Any:
        self._notes.append(place)
        return await super().turn(place, *arguments)


class CountedStore:
    """A memory store that knows how often a waiter has asked for its turn."""

    def __init__(self) -> None:
        self.memory = MemoryStore()
        self.turns: list[Place] = []

    def open_backend(self, runtime: Runtime) -> Backend:
        return CountedBackend(self, runtime)


def test_a_waiter_that_was_woken_for_nothing_tries_once_and_waits_again() -> None:
    store = CountedStore()
    with leasehold.connect(store) as client:
        held = client.lock("x", ttl=300).acquire()
        waiter = threading.Thread(target=lambda: client.lock("x", ttl=300).acquire().release(), daemon=True)
        waiter.start()
        # A place asks again by itself, after a second for its warning and then seldom; from there it is woken.
        eventually(lambda: bool(store.turns), "it asks again after a second")
        before = len(store.turns)
        store.turns[-1].signal.set()
        eventually(lambda: len(store.turns) > before, "it asks when it is woken")
        time.sleep(0.3)
        assert len(store.turns) <= before + 3, "it asks again and again"
        held.release()
        waiter.join(30)
        assert not waiter.is_alive()
