"""The store of a run, as the run sees it: how processes reach it, which faults of its own it has, what is left in it.

`MemoryStage` is the store of the library's own process, which never fails by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from leasehold._backends.memory import MemoryBackend, MemoryStore
from verification.simulation.accounts import StoreModel
from verification.simulation.network import NetworkStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.spi import Store
    from leasehold.values import Capability
    from verification.simulation.history import History
    from verification.simulation.network import Link
    from verification.simulation.runtime import SimRuntime
    from verification.simulation.schedule import Schedule
    from verification.simulation.world import World

__all__ = ["MemoryStage", "Stage", "StoredRecords"]

RETENTION = 86_400.0 + 3_600.0


class StoredRecords(Protocol):
    """The records and the time of day of a store, looked at from outside: at no time, and without a network."""

    error: float  # seconds by which a client may read another time of day than the store's

    def time(self) -> float:
        """What the store's clock shows, in seconds since 1970."""

    def value(self, key: str) -> bytes:
        """What the record at this key says; empty if there is none."""


class Stage(Protocol):
    """One store for one run."""

    model: StoreModel
    drift: float  # by how much a process' clock may be fast or slow against the world's
    delay: float  # how much longer than others a waiter may have to wait here
    keeps_until: bool  # whether its calls end at the instant `until`
    keeps_records: bool  # whether it never loses a record that it acknowledged
    forgets: bool  # whether it may lose in this run what it acknowledged, or its clock may be set
    records: StoredRecords | None  # None: it has none
    capabilities: frozenset[Capability]

    def prepare(self, ttl: float, *, queueing: bool, forgetful: bool = False) -> None:
        """The ttl that most claims of the run will have, and whether the store has a queue."""

    def store(self, link: Link) -> Store:
        """The store as seen from one process."""

    def unleash(self, links: Sequence[Link], until: float) -> None:
        """Plan the store's own faults."""

    def heal(self) -> None:
        """It works from now on."""

    async def look_for_leaks(self, runtime: SimRuntime) -> None:
        """After the longest ttl nothing is held and nothing waits; after the retention nothing is remembered."""


class MemoryStage:
    """The memory store behind a network."""

    drift = 0.005  # half of what the library's margin allows
    delay = 0.0
    keeps_until = True
    keeps_records = True
    forgets = False
    capabilities = MemoryBackend.capabilities

    def __init__(self, world: World, history: History, _schedule: Schedule | None = None) -> None:
        self._world = world
        self._history = history
        self.model = StoreModel(world, history)
        self._store = MemoryStore(clock=lambda: world.now, wall=lambda: world.now, label="memory://simulated")
        self.records: StoredRecords | None = RecordsOfMemory(world, self._store)
        self._queueing = True

    def prepare(self, ttl: float, *, queueing: bool, forgetful: bool = False) -> None:  # noqa: ARG002 - it never does
        """See `Stage`."""
        self._queueing = queueing

    def store(self, link: Link) -> Store:
        """See `Stage`."""
        return NetworkStore(self._store, link, self.model, queueing=self._queueing)

    def unleash(self, links: Sequence[Link], until: float) -> None:
        """It has none."""

    def heal(self) -> None:
        """It was never ill."""

    async def look_for_leaks(self, runtime: SimRuntime) -> None:  # noqa: ARG002 - it can be looked at from here
        """See `Stage`."""
        states = self._store.list("")
        if states:
            self._history.violate("left in the store", f"{[(state.name, len(state.holdings)) for state in states]}")
        self._world.now += RETENTION
        if self._store.size:
            self._history.violate("remembered for ever", f"{self._store.size} entries")


class RecordsOfMemory:
    """See `StoredRecords`."""

    error = 0.0

    def __init__(self, world: World, store: MemoryStore) -> None:
        self._world = world
        self._store = store

    def time(self) -> float:
        """See `StoredRecords`."""
        return self._world.now

    def value(self, key: str) -> bytes:
        """See `StoredRecords`."""
        kept = self._store._records._kept.get(key)
        return b"" if kept is None else kept.value
