"""P8: etcd, one thread, nobody else wants the lock. Ours against two bare transactions and against other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.etcd_locks import ETCD3GW, KINDS, OURS, OURS_ASYNC, Bare, make, start, why_missing, why_no_server
from benchmarks.harness import Candidate, Role, measure, timed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Settings, Table
    from verification.lab.etcd import EtcdServer

__all__ = ["run"]

TO_FLOOR, TO_ETCD3GW = 1.3, 3.0


def run(settings: Settings) -> Iterator[Table]:
    """One table."""
    title = "etcd, uncontended pair, one thread"
    if missing := why_no_server():
        yield measure(title, [Candidate(OURS, Role.OURS, None, missing)], settings)
        return
    server = start()
    try:
        bare = Bare(server.address)
        floor = timed("two bare transactions", Role.FLOOR, bare.pairs, settings, close=bare.close)
        table = measure(title, [floor, *(_pairs(settings, kind, server) for kind in KINDS)], settings)
    finally:
        server.remove()
    table.notes += verdicts(table)
    yield table


def verdicts(table: Table) -> list[str]:
    """Whether the targets are met, in words."""
    ours, theirs = table.row(OURS), table.row(ETCD3GW)
    notes = []
    if ours.ratio:
        notes.append(f"{ours.ratio:.2f} x the two bare transactions (target: at most {TO_FLOOR:.1f} x)")
    if ours.best and theirs.best:
        notes.append(f"{theirs.best / ours.best:.1f} x as fast as {ETCD3GW} (target: at least {TO_ETCD3GW:.0f} x)")
    return notes


def _pairs(settings: Settings, kind: str, server: EtcdServer) -> Candidate:
    role = Role.OURS if kind in (OURS, OURS_ASYNC) else Role.PEER
    if missing := why_missing(kind):
        return Candidate(kind, role, None, missing)
    lock = make(kind, server.host, server.port, f"pair-{list(KINDS).index(kind)}")
    return timed(kind, role, lock.pairs, settings, close=lock.close)
