"""What the runner and the faults ask of a store under test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import leasehold
from verification.lab.shifted_clock import ShiftedClock
from verification.lab.small_disk import SmallDisk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verification.lab.process import ServerProcess

__all__ = ["Address", "Stage"]

Address = tuple[str, int]
DISK = 64  # MB, more than any of the servers needs for a run


class Stage:
    """Servers of one store. A subclass gives `servers` and `url`, and what its store can suffer beyond that."""

    name = ""
    ttl = 1.0
    clients = 4
    threads = 1  # clients within one process
    servers: Sequence[ServerProcess] = ()
    discovers = False  # clients learn addresses from the servers, so that a proxy is passed by
    has_clock = True  # its servers take the time from a library that can be shifted
    disk_size = DISK

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.disks: list[SmallDisk] = []
        self.clocks: list[ShiftedClock] = []

    # --- where clients find it

    @property
    def addresses(self) -> list[Address]:
        """Of the servers that clients connect to."""
        return [("127.0.0.1", server.port) for server in self.servers]

    def url(self, addresses: Sequence[Address]) -> str:
        """With these addresses in the place of the servers' own."""
        raise NotImplementedError

    # --- life

    def start(self) -> None:
        """Start all servers, on small disks if these shall be full one day."""
        self.make_fit()
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait_ready()

    def make_fit(self) -> None:
        """Before the start: clocks that can be set, folders on small disks."""
        if self.fault == "clock" and self.has_clock:
            for server in self.servers:
                clock = ShiftedClock(server.folder)
                server.variables = clock.environment()
                self.clocks.append(clock)
        if self.fault == "disk full":
            self.disks = [SmallDisk(server.folder, self.disk_size) for server in self.servers]
            for disk in self.disks:
                disk.mount()

    def remove(self) -> None:
        """End all servers."""
        for server in self.servers:
            server.kill()
        for disk in self.disks:
            disk.remove()
        for server in self.servers:
            server.remove()

    # --- faults

    def victims(self) -> list[ServerProcess]:
        """The servers that may be paused or killed, one at a time."""
        return [server for server in self.servers if server.is_running]

    def revive(self) -> None:
        """Start again, with the data it has, what has ended."""
        for server in self.servers:
            if not server.is_running:
                server.start()

    def fail_over(self) -> str:
        """Make another server the primary or the leader; what was done, for the record."""
        raise NotImplementedError

    def restart_empty(self) -> str:
        """Let a server come back without what it had stored; what was done."""
        raise NotImplementedError

    # --- what is left

    def connections(self) -> int:
        """How many connections of clients the servers still have."""
        return 0

    def held(self) -> int:
        """How many locks are held or waited for."""
        with leasehold.connect(self.url(self.addresses)) as client:
            return sum(len(state.holdings) + len(state.waiting) for state in client.locks())
