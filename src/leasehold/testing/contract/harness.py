"""How the contract reaches a store. A harness is made anew for each case."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from leasehold._backends.memory import MemoryStore
from leasehold._urls import find_store
from leasehold.testing.clock import ManualClock
from leasehold.testing.contract.table import REQUIRED
from leasehold.testing.shared import serve

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._runtimes.clock import Clock
    from leasehold.spi import Runtime, Store
    from leasehold.testing.contract.drivers import Driver
    from leasehold.values import Capability

__all__ = ["Harness", "MemoryHarness", "UrlHarness"]

WALL = 1_767_225_600.0  # added to a clock that does not know the time of day


class Harness:
    """One store for one case. Subclass it for a store of your own; `open_store` is all that must be written."""

    capabilities: frozenset[Capability] | None = None  # which the store must declare, no more and no less; None: any
    ttl: float = 1.0  # a short ttl that the store honours
    lateness: float = 0.0  # how much later than its ttl the store may end a grant, because it looks only now and then
    stride = 1  # of the lines between which a thread can be interrupted, every how many-th is tried
    swept = ""  # the folder of the package whose lines these are; "_backends": the rest is swept over another store
    clock: Clock | None = None  # a clock turned by hand, for stores that live in this process

    def open_store(self) -> Store:
        """The store; called several times in a case, always for the same data."""
        raise NotImplementedError("a harness must know how to open its store")

    def url_for_children(self) -> str:
        """The URL with which another process reaches the same data."""
        raise NotImplementedError("a harness must know how other processes reach its store")

    async def pass_time(self, runtime: Runtime, seconds: float) -> None:
        """Let time pass, for the store and for all of its clients."""
        await runtime.sleep(seconds)

    def size(self) -> int | None:
        """How many keys, rows or nodes the store has at the moment; None if the harness cannot look."""
        return None

    def start(self, driver: Driver) -> None:
        """Get ready; called once, before anything else."""

    def stop(self) -> None:
        """Clean up."""

    def again(self) -> Harness | None:
        """A harness for another run of the same case, where time is real and the machine too slow; None: no other."""
        return None


class UrlHarness(Harness):
    """A store that is reached by the same URL from everywhere.

    `capabilities`: which the store must declare; without them, those that it does declare are checked.
    `stride`: more than 1 for one more server behind a backend, every line of which is interrupted over another server.
    `swept`: "_backends" where the lines of the core are interrupted over another store; several folders, with blanks.
    """

    def __init__(
        self,
        url: str,
        capabilities: frozenset[Capability] | None = None,
        ttl: float = 1.0,
        lateness: float = 0.0,
        stride: int = 1,
        swept: str = "",
    ) -> None:
        self._url = url
        self.capabilities = capabilities
        self.ttl = ttl
        self.lateness = lateness
        self.stride = stride
        self.swept = swept

    def again(self) -> Harness:
        """The same: every run has a namespace of its own."""
        return self

    def open_store(self) -> Store:
        """The store behind the URL."""
        return find_store(self._url)

    def url_for_children(self) -> str:
        """The URL itself."""
        return self._url


class MemoryHarness(Harness):
    """The memory store, with a clock turned by hand, so that no case has to wait.

    Cases with other processes run on real time, because those processes do; so does everything in the simulator, whose
    time is virtual anyway.
    """

    capabilities: frozenset[Capability] | None = REQUIRED["memory"]

    def __init__(self) -> None:
        self._cleanup = ExitStack()
        self._store: MemoryStore | None = None
        self._url: str | None = None
        self._now: Callable[[], float] | None = None

    def start(self, driver: Driver) -> None:
        """Choose the clock."""
        if driver.name == "simulation":
            self._now = driver.runtime().now
        else:
            self.clock: Clock | None = ManualClock()

    def open_store(self) -> Store:
        """The one store of this case."""
        if self._store is None:
            now = self.clock.now if self.clock is not None else self._now
            self._store = MemoryStore() if now is None else MemoryStore(clock=now, wall=lambda: WALL + now())
        return self._store

    def url_for_children(self) -> str:
        """A socket through which other processes use the store; time is real from then on."""
        if self._url is None:
            if self._store is not None:
                raise RuntimeError("ask for the URL before opening the store, so that it gets a real clock")
            self.clock = self._now = None
            self._store = store = MemoryStore()
            folder = self._cleanup.enter_context(tempfile.TemporaryDirectory())
            self._url = self._cleanup.enter_context(serve(store, str(Path(folder) / "store")))
        return self._url

    def again(self) -> Harness | None:
        """A new store, if other processes made time real."""
        return None if self._url is None else MemoryHarness()

    async def pass_time(self, runtime: Runtime, seconds: float) -> None:
        """Turn the clock, or sleep where it cannot be turned."""
        if isinstance(self.clock, ManualClock):
            self.clock.advance(seconds)
        else:
            await runtime.sleep(seconds)

    def size(self) -> int | None:
        """How many claims and marks are kept, whatever they are for."""
        return None if self._store is None else self._store.size

    def stop(self) -> None:
        """Stop serving, and end every wait on the clock."""
        self._cleanup.close()
        if isinstance(self.clock, ManualClock):
            self.clock.advance(1_000_000)
