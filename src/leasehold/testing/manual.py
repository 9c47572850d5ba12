"""A memory store whose clock is turned by hand and whose network fails on demand."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any

from leasehold._backends.memory import MemoryStore
from leasehold._blocking import Client
from leasehold._durations import Duration, seconds
from leasehold._face.client import DEFAULT_TTL, AsyncClient
from leasehold._runtimes.threads import run
from leasehold.errors import ConfigurationError
from leasehold.testing.clock import AUTOJUMP, ManualClock
from leasehold.testing.faults import Faults, FaultyBackend
from leasehold.testing.losing import lose
from leasehold.testing.runtimes import ManualAsyncioRuntime, ManualThreadRuntime

if TYPE_CHECKING:
    from datetime import datetime

    from leasehold._blocking import Lease
    from leasehold._face.lease import AsyncLease
    from leasehold.spi import Backend, Runtime

__all__ = ["ManualStore"]

NEW_YEAR = 1_767_225_600.0  # what the store's wall clock shows at first: 2026-01-01 00:00 UTC
PATIENCE = 10.0  # real seconds that a keeper may take to do what is due


class ManualStore:
    """One store, one clock and one script of faults, shared by all clients made from it.

    Its clock jumps when all of the program waits: a call with a timeout of a minute ends at once when nothing in the
    process has moved for `autojump` real seconds. With None the clock moves only when it is turned.
    """

    def __init__(self, *, autojump: float | None = AUTOJUMP) -> None:
        self.clock: ManualClock = ManualClock(autojump=autojump)
        self.faults: Faults = Faults()
        self._wall_offset = NEW_YEAR - self.clock.now()
        self.memory: MemoryStore = MemoryStore(clock=self.clock.now, wall=self._wall)
        self._clients: list[AsyncClient] = []

    def open_backend(self, runtime: Runtime) -> Backend:
        """Connect to it."""
        return FaultyBackend(self.memory.open_backend(runtime), runtime, self.faults)

    def connect(
        self,
        *,
        namespace: str | None = None,
        ttl: Duration = DEFAULT_TTL,
        timeout: Duration | None = None,
        label: str | None = None,
    ) -> Client:
        """A blocking client on this store and clock."""
        twin = AsyncClient(
            self, ManualThreadRuntime(self.clock), namespace=namespace, ttl=ttl, timeout=timeout, label=label
        )
        twin._close_patience = 0.0
        self._clients.append(twin)
        return Client._of(twin)

    def connect_async(
        self,
        *,
        namespace: str | None = None,
        ttl: Duration = DEFAULT_TTL,
        timeout: Duration | None = None,
        label: str | None = None,
    ) -> AsyncClient:
        """An async client on this store and clock."""
        client = AsyncClient(
            self, ManualAsyncioRuntime(self.clock), namespace=namespace, ttl=ttl, timeout=timeout, label=label
        )
        client._close_patience = 0.0
        self._clients.append(client)
        return client

    def pass_time(self, duration: Duration) -> None:
        """Let time pass as it does on a healthy host: blocking clients renew their leases meanwhile."""
        left = seconds(duration, "duration")
        while left > 0:
            step = min(left, 0.5)
            self.clock.advance(step)
            left -= step
            self._wait_for_keepers()

    def set_wall(self, moment: datetime) -> None:
        """Set the store's time of day, which `once` goes by; it then runs with the clock. It may be set back."""
        if moment.tzinfo is None:
            raise ConfigurationError(f"{moment} needs a time zone")
        self._wall_offset = moment.timestamp() - self.clock.now()

    def lose(self, lease: Lease | AsyncLease) -> None:
        """Take this lease away now, as if the store had forgotten it."""
        twin: Any = getattr(lease, "_twin", lease)
        self.memory.release(twin._tenure.grant)
        lose(lease)

    def close(self) -> None:
        """Close the blocking clients that were made from it; nothing warns of leases that they still hold."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            for client in self._clients:
                if client._runtime.blocking:
                    run(client.close())

    def _wall(self) -> float:
        return self.clock.now() + self._wall_offset

    def _wait_for_keepers(self) -> None:
        patience = time.monotonic() + PATIENCE
        opened = [opened for client in self._clients for opened in client._open_clients.all()]
        while not self.faults.delayed and not all(s.keeper.is_quiet() and s.cleanup.is_quiet() for s in opened):
            if time.monotonic() > patience:
                raise RuntimeError("a keeper did not do what was due; is its event loop blocked by pass_time()?")
            time.sleep(0.001)
