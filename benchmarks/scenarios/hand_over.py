"""From a release in one process to the grant in another that waits for it; and what an idle waiter costs."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import leasehold
from benchmarks.contender import Contender
from benchmarks.harness import Candidate, Role, Sample, measure, percentile
from benchmarks.locks import OURS, make, why_missing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Settings, Table

__all__ = ["run"]

# Long enough that the other process waits by then, and spread over the longest interval at which a peer looks again:
# a fixed time would always hit the same moment of that interval, and show its best or its worst case as if it were all.
HOLD = (0.01, 0.26)


def run(settings: Settings) -> Iterator[Table]:
    """Latency, then the idle waiter."""
    kinds = ("flock(2)", OURS, "filelock", "fasteners", "portalocker")
    candidates = [_passed(settings, kind) for kind in kinds]
    yield measure("Hand-over between two processes, p50", candidates, settings, unit="ms", by="median")
    yield measure("Idle waiter on SQLite", [_idle(settings)], settings, unit="% of a core", by="median")


def _passed(settings: Settings, kind: str) -> Candidate:
    role = Role.OURS if kind == OURS else Role.FLOOR if kind == "flock(2)" else Role.PEER
    if missing := why_missing(kind):
        return Candidate(kind, role, None, missing)
    path = settings.directory / f"passed-{kind}"
    lock, other = make(kind, path), Contender("wait", kind, path).started()
    most, limit = settings.pick((20, 5.0), (2, 0.1))
    chance = random.Random(1)  # the same times for every candidate

    def sample() -> Sample:
        delays: list[float] = []
        end = time.monotonic() + limit
        while len(delays) < most and (time.monotonic() < end or not delays):
            lock.take()
            other.tell("wait")
            time.sleep(chance.uniform(*HOLD))
            released = time.monotonic()
            lock.give()
            delays.append(1000 * (other.answer() - released))
        return Sample(percentile(delays, 0.5), {"longest ms": max(delays), "hand-overs": len(delays)})

    return Candidate(kind, role, sample, close=other.close)


def _idle(settings: Settings) -> Candidate:
    path = settings.directory / "idle"
    client = leasehold.connect(f"sqlite:///{path}")
    lease = client.lock("bench").acquire()
    waiter = Contender("idle", OURS, path, settings.pick(3.0, 0.2)).started()

    def sample() -> Sample:
        waiter.tell("wait")
        share, wakes = waiter.answer()
        return Sample(share, {"wake-ups a second": wakes})

    def close() -> None:
        waiter.close()
        lease.release()
        client.close()

    return Candidate(OURS, Role.OURS, sample, close=close)
