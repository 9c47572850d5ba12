"""P3: Redlock over five nodes, nobody else wants the lock: ours, our single node, a floor, and other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.harness import Candidate, Role, measure, timed
from benchmarks.redis_server import why_missing as why_no_server
from benchmarks.redlock_locks import KINDS, OURS, Bare, Ours, OursAsync, make, why_missing
from verification.lab.redlock import RedlockNodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Settings, Table
    from benchmarks.redlock_locks import Pairs

__all__ = ["run"]

SINGLE = "leasehold, one Redis"
BARE = "five bare sockets, our scripts, all answers waited for"
ONE_DEAD = "leasehold, five nodes, one of them dead"
REDLOCK_PY = "redlock-py, five nodes"
TO_SINGLE, TO_REDLOCK_PY = 2.5, 4.0


def run(settings: Settings) -> Iterator[Table]:
    """One table."""
    title = "Redlock, uncontended pair, one thread"
    if missing := why_no_server():
        yield measure(title, [Candidate(OURS, Role.OURS, None, missing)], settings)
        return
    with RedlockNodes(5, max_ttl=60) as nodes, RedlockNodes(5, max_ttl=60) as wounded:
        wounded.servers[2].kill()
        ports = [server.port for server in nodes.servers]
        candidates = [
            _pairs(settings, SINGLE, Role.FLOOR, Ours(nodes.servers[0].url)),
            _pairs(settings, BARE, Role.FLOOR, Bare(nodes)),
            _pairs(settings, OURS, Role.OURS, Ours(nodes.url())),
            _pairs(settings, ONE_DEAD, Role.OURS, Ours(wounded.url())),
            _pairs(settings, "leasehold, five nodes, asyncio", Role.OURS, OursAsync(nodes.url())),
            *(_peer(settings, kind, ports) for kind in KINDS),
        ]
        table = measure(title, candidates, settings)
    table.notes += _verdicts(table)
    yield table


def _pairs(settings: Settings, name: str, role: Role, pairs: Pairs) -> Candidate:
    return timed(name, role, pairs.run, settings, close=pairs.close)


def _peer(settings: Settings, kind: str, ports: list[int]) -> Candidate:
    if missing := why_missing(kind):
        return Candidate(kind, Role.PEER, None, missing)
    return _pairs(settings, kind, Role.PEER, make(kind, ports))


def _verdicts(table: Table) -> list[str]:
    """Whether the targets are met, in words."""
    ours, bare, dead, theirs = (table.row(name) for name in (OURS, BARE, ONE_DEAD, REDLOCK_PY))
    notes = []
    if ours.ratio and bare.ratio:
        floor = f"the bare floor is {bare.ratio:.2f} x"
        notes.append(f"{ours.ratio:.2f} x our single node (target: at most {TO_SINGLE:.1f} x); {floor}")
    if ours.best and theirs.best:
        notes.append(f"{theirs.best / ours.best:.2f} x as fast as redlock-py (target: at least {TO_REDLOCK_PY:.0f} x)")
    if ours.best and dead.best:
        notes.append(f"with a dead node {dead.best / ours.best:.2f} x (target: no dearer)")
    return notes
