"""P12 on ZooKeeper: a pair beside many held names, and grants while many wait.

Every claim lists its siblings once, so a claim that joins a long line costs more; a hand-over does not list at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import leasehold
from benchmarks.harness import Candidate, Role, measure, timed
from benchmarks.scenarios.growth import queue_of_tasks
from benchmarks.zookeeper_locks import OURS, start, why_no_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Settings, Table

__all__ = ["run"]


def run(settings: Settings) -> Iterator[Table]:
    """Held names, then waiters."""
    if missing := why_no_server():
        yield measure("ZooKeeper: growth", [Candidate(OURS, Role.OURS, None, missing)], settings)
        return
    server = start()
    try:
        sizes = settings.pick((1, 10, 100, 1_000), (1, 10))
        candidates = [_held(settings, server.url(f"/held-{size}"), size) for size in sizes]
        yield measure("ZooKeeper: pair beside held names", candidates, settings)
        candidates = [
            queue_of_tasks(settings, lambda name: server.url(f"/{name}"), size + 1, f"{size:,} waiting")
            for size in sizes
        ]
        title = "ZooKeeper: grants with a queue of asyncio tasks"
        yield measure(title, candidates, settings, unit="grants a second", higher_is_better=True, by="median")
    finally:
        server.remove()


def _held(settings: Settings, url: str, size: int) -> Candidate:
    client = leasehold.connect(url)
    leases = [client.lock(f"held:{number}").acquire() for number in range(size)]
    lock = client.lock("bench")

    def pairs(count: int) -> None:
        for _ in range(count):
            lock.acquire().release()

    def close() -> None:
        for lease in leases:
            lease.release()
        client.close()

    return timed(f"{size:,} held", Role.OURS, pairs, settings, close=close)
