"""P7: the SQLite store. Uncontended pairs against two bare statements, and four processes on one name against peers."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING

import leasehold
from benchmarks.contender import Contender, contended
from benchmarks.harness import Candidate, Role, Sample, measure, timed
from benchmarks.locks import KINDS, OURS, make, why_missing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.harness import Settings, Table

__all__ = ["run"]

PROCESSES = 4

_TABLE = """
CREATE TABLE lease (key TEXT PRIMARY KEY, fence INTEGER, held INTEGER, owner TEXT, ttl REAL, since REAL, expires REAL,
                    host TEXT, pid INTEGER, label TEXT, reason TEXT) WITHOUT ROWID
"""
_TAKE = """
INSERT INTO lease VALUES (?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET
  fence = max(fence + 1, excluded.fence), held = 1, owner = excluded.owner, ttl = excluded.ttl, since = excluded.since,
  expires = excluded.expires, host = excluded.host, pid = excluded.pid, label = excluded.label, reason = excluded.reason
WHERE held = 0 RETURNING fence
"""
_GIVE = "UPDATE lease SET held = 0, owner = NULL WHERE key = ? AND held = 1 AND owner = ? AND expires > ?"


def run(settings: Settings) -> Iterator[Table]:
    """Pairs at each level of durability, a pair of each file lock, and contention."""
    for synchronous in ("off", "normal", "full"):
        floor = _floor(settings, synchronous)
        title = f"SQLite, uncontended pair, synchronous={synchronous}"
        yield measure(title, [floor, _ours(settings, synchronous)], settings)
    yield measure("Uncontended pair beside other file locks", [_alone(settings, kind) for kind in _ORDER], settings)
    for held in (0.0, 0.002):
        what = f"{held * 1000:g} ms held" if held else "nothing held"
        # flock(1) ends with its command: there is nothing to hold for a while
        candidates = [_together(settings, kind, held) for kind in _ORDER if not held or kind != "flock(1)"]
        title = f"{PROCESSES} processes on one name, {what}"
        yield measure(title, candidates, settings, unit="grants a second", higher_is_better=True, by="median")


_ORDER = ["flock(2)", OURS, *(kind for kind in KINDS if kind not in (OURS, "flock(2)"))]


def _floor(settings: Settings, synchronous: str) -> Candidate:
    connection = sqlite3.connect(settings.directory / f"floor-{synchronous}", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute(_TABLE)

    def pairs(count: int) -> None:
        execute, owner = connection.execute, "a" * 32
        for _ in range(count):
            now, fence = time.monotonic(), time.time_ns() // 1000
            values = ("leasehold:bench", fence, owner, 30.0, now, now + 30, "host", 4711, None, None)
            execute(_TAKE, values).fetchone()
            execute(_GIVE, ("leasehold:bench", owner, time.monotonic()))

    return timed("two bare statements", Role.FLOOR, pairs, settings, close=connection.close)


def _ours(settings: Settings, synchronous: str) -> Candidate:
    url = f"sqlite:///{settings.directory / synchronous}?synchronous={synchronous}"
    client = leasehold.connect(url)
    lock = client.lock("bench")

    def pairs(count: int) -> None:
        for _ in range(count):
            lock.acquire().release()

    return timed(OURS, Role.OURS, pairs, settings, close=client.close)


def _alone(settings: Settings, kind: str) -> Candidate:
    if missing := why_missing(kind):
        return Candidate(kind, _role(kind), None, missing)
    lock = make(kind, _file(settings.directory, kind, "alone"))

    def pairs(count: int) -> None:
        for _ in range(count):
            lock.take()
            lock.give()

    return timed(kind, _role(kind), pairs, settings)


def _together(settings: Settings, kind: str, held: float) -> Candidate:
    if missing := why_missing(kind):
        return Candidate(kind, _role(kind), None, missing)
    path = _file(settings.directory, kind, f"contended-{held}")
    seconds: float = settings.pick(1.0, 0.1)

    def sample() -> Sample:
        contenders = [Contender("contend", kind, path, held) for _ in range(PROCESSES)]
        for contender in contenders:
            contender.started()
        start = time.monotonic() + 0.1
        for contender in contenders:
            contender.tell(f"{start} {start + seconds}")
        answers = [contender.answer() for contender in contenders]
        for contender in contenders:
            contender.close()
        return contended(answers, seconds)

    return Candidate(kind, _role(kind), sample)


def _role(kind: str) -> Role:
    return Role.OURS if kind == OURS else Role.FLOOR if kind == "flock(2)" else Role.PEER


def _file(directory: Path, kind: str, what: str) -> Path:
    return directory / f"{what}-{list(KINDS).index(kind)}"
