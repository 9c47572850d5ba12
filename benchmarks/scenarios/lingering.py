"""Lingering: a worker that takes the same name again and again, and what that costs a second process."""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import leasehold
from benchmarks.contender import Contender
from benchmarks.harness import Candidate, Role, Sample, measure, timed
from benchmarks.redis_locks import REDIS_PY, Connections, make, why_missing
from benchmarks.scenarios.growth import stores

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.harness import Settings, Table
    from benchmarks.scenarios.growth import UrlOf

__all__ = ["run"]

STAY = "20ms"
TTL = 30.0


def run(settings: Settings) -> Iterator[Table]:
    """A pair of one worker; then how long the lock takes to come to another process."""
    with stores(settings) as urls, ExitStack() as stack:
        candidates = [
            _pair(settings, stack, store, url_of, linger) for store, url_of in urls.items() for linger in (None, STAY)
        ]
        if "Redis" in urls and not why_missing(REDIS_PY):
            candidates.append(_redis_py(settings, urlsplit(urls["Redis"]("x")).port or 0))
        table = measure("one worker, one name", candidates, settings)
        table.notes += _gains(table, urls)
        table.targets.append("at most 15 µs on Redis")
        yield table
        rows = [
            _second(settings, urls[store], store, linger)
            for store in urls
            if store != "memory"
            for linger in (None, STAY)
        ]
        yield measure("a second process wants the name of a busy worker", rows, settings, unit="ms", by="median")


def _named(store: str, linger: str | None) -> str:
    return f"leasehold, {store}" + (f", linger {STAY}" if linger else "")


def _pair(settings: Settings, stack: ExitStack, store: str, url_of: UrlOf, linger: str | None) -> Candidate:
    client = stack.enter_context(leasehold.connect(url_of(f"linger-{linger}"), ttl=TTL))
    lock = client.lock("bench", linger=linger)

    def pairs(count: int) -> None:
        for _ in range(count):
            lock.acquire().release()

    return timed(_named(store, linger), Role.OURS, pairs, settings)


def _redis_py(settings: Settings, port: int) -> Candidate:
    connections = Connections(port)
    lock = make(REDIS_PY, connections, "redis-py")

    def pairs(count: int) -> None:
        for _ in range(count):
            lock.take()
            lock.give()

    return timed(REDIS_PY, Role.PEER, pairs, settings, close=connections.close)


def _gains(table: Table, urls: Mapping[str, UrlOf]) -> Iterator[str]:
    for store in urls:
        plain, lingering = table.row(_named(store, None)).best, table.row(_named(store, STAY)).best
        if plain and lingering:
            yield f"{store}: {lingering / plain:.2f} x a pair that goes to the store"


def _second(settings: Settings, url_of: UrlOf, store: str, linger: str | None) -> Candidate:
    """How long a call in this process takes to get the name that a worker elsewhere takes and gives without a pause."""
    calls: int = settings.pick(20, 2)

    def sample() -> Sample:
        url, name = url_of(f"second-{linger}"), "bench"
        worker = Contender("work", url, name, TTL, linger or "", module="benchmarks.store_contender").started()
        waits = []
        with leasehold.connect(url, ttl=TTL) as client:
            lock = client.lock(name)
            for _ in range(calls):
                started = time.monotonic()
                with lock.hold(timeout=TTL):
                    waits.append(1000 * (time.monotonic() - started))
                time.sleep(0.01)  # the worker has it again
        worker.tell("enough")
        worker.close()
        return Sample(statistics.median(waits), {"longest ms": max(waits)})

    return Candidate(_named(store, linger), Role.OURS, sample)
