"""The public contract over the simulated server: `python -m verification.simulation.redis.harness` runs all of it.

Cases that start other processes are left out: those live in real time.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from leasehold._backends.redis.options import Options
from leasehold.testing import contract
from verification.simulation.driver import SimDriver
from verification.simulation.network import Link
from verification.simulation.redis.server import SimRedis
from verification.simulation.redis.store import open_plain

if TYPE_CHECKING:
    from leasehold.spi import Backend, Store
    from leasehold.testing.contract.drivers import Driver
    from verification.simulation.world import Process

__all__ = ["CASES", "SimRedisHarness"]

CASES = [case for case in contract.CASES if not case.processes]


class SimRedisHarness(contract.Harness):
    """One server in the world of the case."""

    capabilities = contract.REQUIRED["redis"]

    def __init__(self, *, shared: bool = True) -> None:
        self._shared = shared
        self._server: SimRedis | None = None
        self._process: Process | None = None

    def start(self, driver: Driver) -> None:
        """Join the driver's world."""
        runtime: Any = driver.runtime()
        self._process = runtime.process
        self._server = SimRedis(runtime.world)

    def open_store(self) -> Store:
        """The server, over links of its own."""
        return self

    def open_backend(self, runtime: Any) -> Backend:
        """Connect."""
        assert self._server is not None
        assert self._process is not None
        link = Link(self._process, timeout=1.0)
        return open_plain(self._server, link, runtime, Options(), shared=self._shared)


def main() -> int:
    """Run every case; print what failed; 0 if nothing did."""
    failures = 0
    for seed, case in enumerate(CASES):
        try:
            contract.check(case, SimRedisHarness(shared=seed % 2 == 0), SimDriver(seed))
        except Exception as error:
            failures += 1
            print(f"FAILED simulation {case}: {error!r}")
    print(f"{len(CASES) - failures} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
