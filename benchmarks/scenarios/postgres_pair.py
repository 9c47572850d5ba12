"""P10: PostgreSQL, one thread, nobody else wants the lock. Ours against two bare statements and other libraries.

Without fsync the disk is out of the picture, and what the client and the server compute is compared. With fsync each
commit waits for the disk, as it does in production.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.harness import Candidate, Role, measure, timed
from benchmarks.postgres_locks import FLOORS, OURS, PEERS, make, why_missing, why_no_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Settings, Table

__all__ = ["run"]

TO_FLOOR = 1.25


def run(settings: Settings) -> Iterator[Table]:
    """A table without waiting for the disk, and one with."""
    if missing := why_no_server():
        yield measure("PostgreSQL, uncontended pair", [Candidate(OURS[0], Role.OURS, None, missing)], settings)
        return
    from verification.lab.postgres import PostgresServer  # noqa: PLC0415 - it needs psycopg

    for fsync in ("off", "on"):
        with PostgresServer(settings={"fsync": fsync, "full_page_writes": "on"}) as server:
            assert isinstance(server, PostgresServer)
            kinds = [*FLOORS, *OURS, *PEERS]
            candidates = [_pairs(settings, kind, server.url()) for kind in kinds]
            table = measure(f"PostgreSQL, uncontended pair, fsync {fsync}", candidates, settings)
        ratio = table.row(OURS[0]).ratio
        if ratio:
            table.notes.append(f"{ratio:.2f} x the two bare statements (target: at most {TO_FLOOR:.2f} x)")
        table.notes.append("the peers keep no row and give no fence, so they do not wait for the disk")
        yield table


def _pairs(settings: Settings, kind: str, url: str) -> Candidate:
    role = Role.OURS if kind in OURS else Role.FLOOR if kind in FLOORS else Role.PEER
    if missing := why_missing(kind):
        return Candidate(kind, role, None, missing)
    lock = make(kind, url, f"pair {kind}")

    def pairs(count: int) -> None:
        take, give = lock.take, lock.give
        for _ in range(count):
            take()
            give()

    return timed(kind, role, pairs, settings, close=lock.close)
