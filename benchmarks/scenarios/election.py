"""How long an election is without a leader: after it resigned, and after it was killed. Three candidates as processes.

Counted from the signal to the leader until the first read of `is_leader` that is true in another process.
"""

from __future__ import annotations

import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks.harness import Candidate, Role, Sample, measure
from benchmarks.stores import embedded, every_store
from verification.lab.elections import Candidates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Settings, Table

__all__ = ["run"]

TIMINGS = (15.0, 10.0, 2.0)  # the defaults, which are those of client-go
QUICK = (1.5, 1.0, 0.2)
PEER = "client-go: 15 s is its LeaseDuration; another language, so it is not run here"


def run(settings: Settings) -> Iterator[Table]:
    """After a resignation, then after SIGKILL."""
    with ExitStack() as servers:
        stores = embedded(settings.directory) if settings.quick else every_store(settings.directory, servers)
        urls = {store.name: store.url for store in stores if "session" not in store.name}
        resigned = [_candidate(settings, name, url, signal.SIGTERM, 1000.0) for name, url in urls.items()]
        yield measure("Successor of a leader that resigned (SIGTERM)", resigned, settings, unit="ms", by="median")
        killed = [_candidate(settings, name, url, signal.SIGKILL, 1.0) for name, url in urls.items()]
        killed.append(Candidate("client-go, by its defaults", Role.PEER, None, PEER))
        title = "Successor of a leader that was killed (SIGKILL), ttl 15 s"
        yield measure(title, killed, settings, unit="s", by="median")


def _candidate(settings: Settings, name: str, url: str, number: int, scale: float) -> Candidate:
    def sample() -> Sample:
        with Candidates(lambda _: url, None, timings=settings.pick(TIMINGS, QUICK)) as candidates:
            leader, term = candidates.leader()
            candidates.settle()  # the others wait for their turn
            sent = leader.send(number)
            _, successor = candidates.leader(term)
            return Sample(scale * (successor.first - sent))

    return Candidate(name, Role.OURS, sample)
