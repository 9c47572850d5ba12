"""Workers that contend for one lock while a test breaks things, and a look at what they saw.

Each worker has a client of its own on a thread of its own. While it believes in its lease it writes down when: two
beliefs at one instant, or a fence that does not rise, is what no fault may bring about.
"""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import leasehold
from verification.lab.process import wait_until

if TYPE_CHECKING:
    from types import TracebackType

PATIENCE = 90.0


@dataclass(slots=True)
class Tenure:
    """One grant as its holder saw it: the first and the last instant at which `check` let it pass."""

    worker: int
    fence: int
    first: float
    last: float
    lost: bool = False


class Contest:
    """Some workers on one name; use it as a context manager, and ask `verdict` at the end."""

    def __init__(self, url: str, *, workers: int = 3, ttl: float = 3.0, held: float = 0.05) -> None:
        self._url, self._ttl, self._held = url, ttl, held
        self._over = threading.Event()
        self.tenures: list[Tenure] = []
        self.troubles: list[BaseException] = []
        self._holding = 0
        self._threads = [
            threading.Thread(target=self._work, args=(number,), name=f"worker {number}") for number in range(workers)
        ]

    def __enter__(self) -> Contest:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), f"{thread.name} hangs"

    def everybody_gets_it(self) -> None:
        """Wait until every worker has had another grant from now on."""
        begin = len(self.tenures)

        def served() -> bool:
            return {tenure.worker for tenure in self.tenures[begin:]} == set(range(len(self._threads)))

        wait_until(served, "not every worker got the lock", PATIENCE)

    def wait_for_a_holder(self) -> None:
        """Wait until somebody holds the lock."""
        wait_until(lambda: self._holding, "nobody got the lock", PATIENCE)

    def wait_for_an_end(self) -> None:
        """Wait until somebody has let go of it."""
        wait_until(lambda: self.tenures, "nobody ended", PATIENCE)

    def verdict(self) -> None:
        """No two at one instant, and fences that rise in the order of the grants."""
        self.fences_rise()
        tenures = sorted(self.tenures, key=lambda tenure: tenure.first)
        for before, after in itertools.pairwise(tenures):
            assert before.last < after.first, f"two held at one instant: {before}, {after}"

    def fences_rise(self) -> None:
        """Whoever got it later has a higher fence."""
        assert not self.troubles, self.troubles
        tenures = sorted(self.tenures, key=lambda tenure: tenure.first)
        for before, after in itertools.pairwise(tenures):
            assert before.fence < after.fence, f"fences do not rise: {before}, {after}"

    def _work(self, number: int) -> None:
        try:
            with leasehold.connect(self._url, ttl=self._ttl, namespace="contest") as client:
                while not self._over.is_set():
                    self._try_one(client, number)
        except BaseException as error:
            self.troubles.append(error)

    def _try_one(self, client: leasehold.Client, number: int) -> None:
        try:
            lease = client.lock("x").acquire(timeout=1)
        except (leasehold.AcquireTimeout, leasehold.BackendError):
            return
        now = time.monotonic()
        tenure = Tenure(number, lease.fence, now, now)
        self._holding += 1
        end = now + self._held
        try:
            while now < end:
                lease.check()
                tenure.last = now = time.monotonic()
                time.sleep(0.002)
        except leasehold.LeaseLost:
            tenure.lost = True
        self.tenures.append(tenure)
        try:
            lease.release()
        except leasehold.BackendError:
            return
