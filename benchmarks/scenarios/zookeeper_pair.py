"""P9: ZooKeeper, one thread, nobody else wants the lock. Ours against bare calls, kazoo's own lock and tooz."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.harness import Candidate, Role, measure, timed
from benchmarks.zookeeper_locks import (
    KAZOO,
    KINDS,
    OURS,
    Connections,
    KazooFloor,
    OwnFloor,
    make,
    start,
    why_missing,
    why_no_server,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Settings, Table

__all__ = ["run"]

TO_FLOOR = 1.15


def run(settings: Settings) -> Iterator[Table]:
    """One table."""
    title = "ZooKeeper, uncontended pair, one thread"
    if missing := why_no_server():
        yield measure(title, [Candidate(OURS, Role.OURS, None, missing)], settings)
        return
    server = start()
    connections = Connections(server.port)
    try:
        bare, own = KazooFloor(server.port), OwnFloor(server.port)
        floors = [
            timed("create + listing, delete: kazoo's calls", Role.FLOOR, bare.pairs, settings, close=bare.close),
            timed("the same over our connection", Role.PART, own.pairs, settings, close=own.close),
        ]
        table = measure(title, [*floors, *(_pairs(settings, kind, connections) for kind in KINDS)], settings)
    finally:
        connections.close()
        server.remove()
    table.notes += verdicts(table)
    yield table


def verdicts(table: Table) -> list[str]:
    """Whether the targets are met, in words."""
    ours, theirs, part = table.row(OURS), table.row(KAZOO), table.row("the same over our connection")
    notes = []
    if ours.ratio:
        notes.append(f"{ours.ratio:.2f} x the floor (target: at most {TO_FLOOR:.2f} x)")
    if ours.best and theirs.best:
        notes.append(f"{theirs.best / ours.best:.2f} x as fast as {KAZOO} (target: faster)")
    if ours.best and part.best:
        notes.append(f"{ours.best / part.best:.2f} x the same calls over our own connection")
    return notes


def _pairs(settings: Settings, kind: str, connections: Connections) -> Candidate:
    role = Role.OURS if kind == OURS else Role.PEER
    if missing := why_missing(kind):
        return Candidate(kind, role, None, missing)
    lock = make(kind, connections, f"pair-{list(KINDS).index(kind)}")

    def pairs(count: int) -> None:
        for _ in range(count):
            lock.take()
            lock.give()

    return timed(kind, role, pairs, settings)
