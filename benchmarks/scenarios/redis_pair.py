"""P1: Redis, one thread, nobody else wants the lock. Ours against two bare scripts and against other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.harness import Candidate, Role, measure, timed
from benchmarks.redis_locks import KINDS, OURS, REDIS_PY, Connections, make, why_missing
from benchmarks.redis_server import BareClient, RedisServer, ScriptClient
from benchmarks.redis_server import why_missing as why_no_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Settings, Table

__all__ = ["run"]

TO_FLOOR, TO_REDIS_PY = 1.25, 1.3


def run(settings: Settings) -> Iterator[Table]:
    """One table."""
    title = "Redis, uncontended pair, one thread"
    if missing := why_no_server():
        yield measure(title, [Candidate(OURS, Role.OURS, None, missing)], settings)
        return
    server = RedisServer()
    connections = Connections(server.port)
    try:
        floors = [
            _bare(settings, "two bare scripts, the first mints a fence", ScriptClient(server.port)),
            _bare(settings, "SET NX and DEL, without fence", BareClient(server.port)),
        ]
        ours = [_pairs(settings, OURS, connections), _held(settings, connections)]
        peers = [_pairs(settings, kind, connections) for kind in KINDS if kind != OURS]
        table = measure(title, [*floors, *ours, *peers], settings)
    finally:
        connections.close()
        server.close()
    table.notes += verdicts(table)
    yield table


def verdicts(table: Table) -> list[str]:
    """Whether the targets are met, in words."""
    ours, theirs = table.row(OURS), table.row(REDIS_PY)
    notes = []
    if ours.ratio:
        notes.append(f"{ours.ratio:.2f} x the two bare scripts (target: at most {TO_FLOOR:.2f} x)")
    if ours.best and theirs.best:
        notes.append(f"{theirs.best / ours.best:.2f} x as fast as {REDIS_PY} (target: at least {TO_REDIS_PY:.1f} x)")
    return notes


def _bare(settings: Settings, name: str, client: BareClient) -> Candidate:
    return timed(name, Role.FLOOR, client.pairs, settings, close=client.close)


def _pairs(settings: Settings, kind: str, connections: Connections) -> Candidate:
    role = Role.OURS if kind == OURS else Role.PEER
    if missing := why_missing(kind):
        return Candidate(kind, role, None, missing)
    lock = make(kind, connections, f"pair-{list(KINDS).index(kind)}")

    def pairs(count: int) -> None:
        take, give = lock.take, lock.give
        for _ in range(count):
            take()
            give()

    return timed(kind, role, pairs, settings)


def _held(settings: Settings, connections: Connections) -> Candidate:
    lock = connections.ours.lock("pair-held")

    def pairs(count: int) -> None:
        for _ in range(count):
            with lock.hold():
                pass

    return timed("leasehold, with hold()", Role.OURS, pairs, settings)
