"""P1: Redis, one thread, nobody else wants the lock. Ours against two bare scripts and against other libraries."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from benchmarks.harness import Candidate, Role, measure, timed
from benchmarks.redis_locks import KINDS, OURS, REDIS_PY, Connections, make, why_missing
from benchmarks.redis_server import BareClient, RedisServer, ScriptClient
from benchmarks.redis_server import why_missing as why_no_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Settings, Table

    Cores = tuple[set[int], set[int]]  # the client's, the server's

__all__ = ["run"]

TO_FLOOR, TO_REDIS_PY = 1.25, 1.3


def run(settings: Settings) -> Iterator[Table]:
    """All of them with cores as they come; then the floor, ours and redis-py where their place is fixed."""
    title = "Redis, uncontended pair, one thread"
    if missing := why_no_server():
        yield measure(title, [Candidate(OURS, Role.OURS, None, missing)], settings)
        return
    server = RedisServer()
    connections = Connections(server.port)
    try:
        peers = [_pairs(settings, kind, connections) for kind in KINDS if kind != OURS]
        ours = [_pairs(settings, OURS, connections), _held(settings, connections)]
        bare = _bare(settings, "SET NX and DEL, without fence", BareClient(server.port))
        yield _judged(measure(title, [_floor(settings, server), bare, *ours, *peers], settings))
        for where, cores in _places().items():
            candidates = [
                _floor(settings, server, cores),
                *(_pairs(settings, kind, connections, server, cores) for kind in (OURS, REDIS_PY)),
            ]
            yield _judged(measure(f"{title}, {where}", candidates, settings))
    finally:
        connections.close()
        server.close()


def _places() -> dict[str, tuple[set[int], set[int]]]:
    """Where client and server may run. What waking another core costs differs a lot between machines."""
    first, *others = sorted(os.sched_getaffinity(0))
    apart = {"a core for each": ({first}, set(others))} if others else {}
    return {"both on one core": ({first}, {first}), **apart}


def _judged(table: Table) -> Table:
    table.notes += verdicts(table)
    return table


def verdicts(table: Table) -> list[str]:
    """Whether the targets are met, in words."""
    ours, theirs = table.row(OURS), table.row(REDIS_PY)
    notes = []
    if ours.ratio:
        notes.append(f"{ours.ratio:.2f} x the two bare scripts (target: at most {TO_FLOOR:.2f} x)")
    if ours.best and theirs.best:
        notes.append(f"{theirs.best / ours.best:.2f} x as fast as {REDIS_PY} (target: at least {TO_REDIS_PY:.1f} x)")
    return notes


def _floor(settings: Settings, server: RedisServer, cores: Cores | None = None) -> Candidate:
    client = ScriptClient(server.port)
    pairs = server.pinned(client.pairs, *cores) if cores else client.pairs
    return timed("two bare scripts, the first mints a fence", Role.FLOOR, pairs, settings, close=client.close)


def _bare(settings: Settings, name: str, client: BareClient) -> Candidate:
    return timed(name, Role.FLOOR, client.pairs, settings, close=client.close)


def _pairs(
    settings: Settings,
    kind: str,
    connections: Connections,
    server: RedisServer | None = None,
    cores: Cores | None = None,
) -> Candidate:
    role = Role.OURS if kind == OURS else Role.PEER
    if missing := why_missing(kind):
        return Candidate(kind, role, None, missing)
    lock = make(kind, connections, f"pair-{list(KINDS).index(kind)}")

    def pairs(count: int) -> None:
        take, give = lock.take, lock.give
        for _ in range(count):
            take()
            give()

    return timed(kind, role, server.pinned(pairs, *cores) if server and cores else pairs, settings)


def _held(settings: Settings, connections: Connections) -> Candidate:
    lock = connections.ours.lock("pair-held")

    def pairs(count: int) -> None:
        for _ in range(count):
            with lock.hold():
                pass

    return timed("leasehold, with hold()", Role.OURS, pairs, settings)
