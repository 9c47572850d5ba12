"""Stampede: 200 readers over four processes want one value that is fresh for 8 s and takes 0.4 s to build.

A cycle is one build, and those that begin before it has ended or less than the time of a build later. A read waits if
it does not build itself, began before the second half of a build, and was given what that build made: the value before
it would have done.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.caches import BUILD, CACHES, TTL, why_missing
from benchmarks.contender import Contender
from benchmarks.harness import Candidate, Role, Row, Sample, Settings, Table, measure, percentile
from benchmarks.redis_server import RedisServer
from benchmarks.redis_server import why_missing as why_no_redis

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["cycles", "run"]

PROCESSES = 4


def run(settings: Settings) -> Iterator[Table]:
    """Builds, waits and times, side by side."""
    missing = why_no_redis()
    server = None if missing else RedisServer()
    try:
        candidates = [
            Candidate(
                name,
                Role.OURS if name.startswith("leasehold") else Role.PEER,
                None if server is None or why_missing(name) else partial(_sample, server, name, settings),
                missing or why_missing(name),
            )
            for name in CACHES
        ]
        title = f"{settings.pick(200, 20)} readers over {PROCESSES} processes: builds"
        table = measure(title, candidates, settings, unit="builds per cycle", by="median")
    finally:
        if server is not None:
            server.close()
    table.notes.append(f"a value is fresh for {TTL:g} s and takes {BUILD:g} s to build; Redis on the same machine")
    yield table
    waits = _by_fact(table, "waits per cycle", "reads that wait for another's build", "waits per cycle")
    waits.notes.append(
        "a read that the busy machine itself held up for longer than half a build counts as well; see the longest reads"
    )
    yield waits
    yield _by_fact(table, "p99 ms", "99 of 100 reads are faster than", "ms")


def cycles(builds: Sequence[tuple[float, float]]) -> int:
    """How many cycles these builds belong to, by when each began and ended."""
    count, over = 0, -math.inf
    for began, ended in sorted(builds):
        if began > over:
            count, over = count + 1, ended + BUILD
    return count


def _sample(server: RedisServer, name: str, settings: Settings) -> Sample:
    server.ask("FLUSHALL")
    readers, seconds = settings.pick(200, 20) // PROCESSES, settings.pick(4 * TTL, 2.0)
    processes = [Contender(name, server.url, readers, module="benchmarks.cache_reader") for _ in range(PROCESSES)]
    for process in processes:
        process.started()
    start = time.monotonic() + 0.5
    for process in processes:
        process.tell(f"{start} {start + seconds}")
    answers: list[dict[str, Any]] = [process.answer() for process in processes]
    for process in processes:
        process.close()
    builds = [(began, ended) for answer in answers for began, ended in answer["builds"]]
    reads = [(took, waited) for answer in answers for took, waited in answer["reads"]]
    return _summary(builds, reads)


def _summary(builds: Sequence[tuple[float, float]], reads: Sequence[tuple[float, bool]]) -> Sample:
    count, times = max(1, cycles(builds)), [took for took, _ in reads]
    facts = {
        "cycles": float(count),
        "waits per cycle": sum(waited for _, waited in reads) / count,
        "p50 ms": 1000 * percentile(times, 0.5),
        "p99 ms": 1000 * percentile(times, 0.99),
        "longest ms": 1000 * max(times),
    }
    return Sample(len(builds) / count, facts)


def _by_fact(table: Table, fact: str, title: str, unit: str) -> Table:
    """The same run, compared by another of its figures."""
    rows = []
    for row in table.rows:
        figure = row.facts.get(fact)
        values = [] if figure is None else [figure]
        rows.append(Row(row.name, row.role, figure, figure, values=values, missing=row.missing))
    return Table(table.title.partition(":")[0] + f": {title}", unit, rows, by="median")
