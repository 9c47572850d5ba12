"""P12 for Redlock: a pair must not cost more when many other names are held."""

from __future__ import annotations

from typing import TYPE_CHECKING

import leasehold
from benchmarks.harness import Candidate, Role, measure, timed
from benchmarks.redis_server import why_missing
from verification.lab.redlock import RedlockNodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Settings, Table

__all__ = ["run"]


def run(settings: Settings) -> Iterator[Table]:
    """Held names."""
    title = "Redlock, five nodes: pair beside held names"
    if missing := why_missing():
        yield measure(title, [Candidate("leasehold", Role.OURS, None, missing)], settings)
        return
    sizes = settings.pick((1, 10, 100, 1_000, 10_000), (1, 10))
    with RedlockNodes(5, max_ttl=300) as nodes:
        yield measure(title, [_held(settings, nodes.url(), size) for size in sizes], settings)


def _held(settings: Settings, url: str, size: int) -> Candidate:
    client = leasehold.connect(url, ttl=300)
    leases = [client.lock(f"held-{size}:{number}").acquire() for number in range(size)]
    lock = client.lock(f"bench-{size}")

    def pairs(count: int) -> None:
        for _ in range(count):
            lock.acquire().release()

    def close() -> None:
        for lease in leases:
            lease.release()
        client.close()

    return timed(f"{size:,} held", Role.OURS, pairs, settings, close=close)
