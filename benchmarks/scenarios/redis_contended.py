"""P4: Redis, one name, four processes with four threads each; and what an idle waiter sends."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.contender import Contender, contended
from benchmarks.harness import Candidate, Role, Sample, measure
from benchmarks.redis_contender import NAME
from benchmarks.redis_locks import OURS, PYTHON_REDIS_LOCK, REDIS_PY, Connections, make, why_missing
from benchmarks.redis_server import RedisServer
from benchmarks.redis_server import why_missing as why_no_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Settings, Table

__all__ = ["run"]

PROCESSES, THREADS = 4, 4
MODULE = "benchmarks.redis_contender"
ORDER = (OURS, REDIS_PY, PYTHON_REDIS_LOCK)
FAIR = 0.5  # a peer whose luckiest thread gets more than twice the grants of its unluckiest does not take turns
TARGETS = "at least 2 x the best fair peer, p99 at most 2 x p50, least/most at least 0.95"


def run(settings: Settings) -> Iterator[Table]:
    """Nothing held, a little held, and an idle waiter."""
    if missing := why_no_server():
        yield measure("Redis, one name", [Candidate(OURS, Role.OURS, None, missing)], settings)
        return
    server = RedisServer()
    try:
        for held in (0.0, 0.005):
            what = f"{held * 1000:g} ms held" if held else "nothing held"
            title = f"Redis, {PROCESSES} processes x {THREADS} threads on one name, {what}"
            candidates = [_together(settings, kind, server, held) for kind in ORDER]
            table = measure(title, candidates, settings, unit="grants a second", higher_is_better=True, by="median")
            table.notes.append(_verdict(table))
            table.targets.append(TARGETS)
            yield table
        title = "Redis, one idle waiter"
        candidates = [_idle(settings, kind, server) for kind in ORDER]
        yield measure(title, candidates, settings, unit="commands a second", by="median")
    finally:
        server.close()


def _verdict(table: Table) -> str:
    fair = [row for row in table.rows if row.role is Role.PEER and row.facts.get("least/most", 0.0) >= FAIR]
    ours = table.row(OURS)
    if not fair or not ours.median:
        return "no peer took turns, so there is none to compare with"
    best = max(fair, key=lambda row: row.median or 0.0)
    p99 = ours.facts["p99 ms"] / ours.facts["wait p50 ms"]
    ratio = ours.median / (best.median or 1.0)
    return f"{ratio:.2f} x {best.name}, the best fair peer; p99 is {p99:.1f} x p50"


def _together(settings: Settings, kind: str, server: RedisServer, held: float) -> Candidate:
    role = Role.OURS if kind == OURS else Role.PEER
    if missing := why_missing(kind):
        return Candidate(kind, role, None, missing)
    processes = settings.pick(PROCESSES, 2)
    seconds: float = settings.pick(4.0 if held else 2.0, 0.1)  # long enough that each has many turns

    def sample() -> Sample:
        contenders = [Contender("contend", kind, server.port, THREADS, held, module=MODULE) for _ in range(processes)]
        for contender in contenders:
            contender.started()
        start = time.monotonic() + 0.2
        for contender in contenders:
            contender.tell(f"{start} {start + seconds}")
        answers = [thread for contender in contenders for thread in contender.answer()]
        for contender in contenders:
            contender.close()
        server.flush()
        return contended(answers, seconds)

    return Candidate(kind, role, sample)


def _idle(settings: Settings, kind: str, server: RedisServer) -> Candidate:
    role = Role.OURS if kind == OURS else Role.PEER
    if missing := why_missing(kind):
        return Candidate(kind, role, None, missing)
    seconds: float = settings.pick(4.0, 0.2)

    def sample() -> Sample:
        connections = Connections(server.port)
        holder = make(kind, connections, NAME)
        waiter = Contender("wait in threads", kind, server.port, 1, module=MODULE).started()
        holder.take()
        waiter.tell("wait")
        time.sleep(settings.pick(0.5, 0.1))  # it is in the queue
        before, started = server.commands(), time.monotonic()
        time.sleep(seconds)
        sent, took = server.commands() - before, time.monotonic() - started
        waiter.tell("how many threads")
        threads = waiter.answer()
        holder.give()
        waiter.answer()
        waiter.close()
        connections.close()
        server.flush()
        return Sample(sent / took, {"threads": threads})

    return Candidate(kind, role, sample)
