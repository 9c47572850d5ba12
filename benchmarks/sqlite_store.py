"""The SQLite store against its floor: pairs, hand-over between processes, and what an idle waiter costs.

    python benchmarks/sqlite_store.py

The floor is two bare statements on a table of the same columns, in the same synchronous mode and SQLite's own page
size. Ours and the floor are interleaved, and the best of the rounds counts.
"""

from __future__ import annotations

import itertools
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import leasehold

ROUNDS, PAIRS, HAND_OVERS, IDLE_SECONDS = 7, 2000, 300, 5.0

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


class Floor:
    """Two statements, nothing around them."""

    def __init__(self, path: Path, synchronous: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute(f"PRAGMA synchronous={synchronous}")
        self._connection.execute(_TABLE)

    def round(self) -> float:
        execute, owner = self._connection.execute, "a" * 32
        started = time.perf_counter()
        for _ in range(PAIRS):
            now, fence = time.monotonic(), time.time_ns() // 1000
            values = ("leasehold:bench", fence, owner, 30.0, now, now + 30, "host", 4711, None, None)
            execute(_TAKE, values).fetchone()
            execute(_GIVE, ("leasehold:bench", owner, now))
        return (time.perf_counter() - started) / PAIRS


class Ours:
    """The public interface."""

    def __init__(self, path: Path, synchronous: str) -> None:
        self._lock = leasehold.connect(f"sqlite:///{path}?synchronous={synchronous}").lock("bench")

    def round(self) -> float:
        lock = self._lock
        started = time.perf_counter()
        for _ in range(PAIRS):
            lock.acquire().release()
        return (time.perf_counter() - started) / PAIRS


def pairs(directory: Path) -> None:
    """Uncontended pairs."""
    for synchronous in ("off", "normal", "full"):
        floor, ours = Floor(directory / f"floor-{synchronous}", synchronous), Ours(directory / synchronous, synchronous)
        rounds = [(floor.round(), ours.round()) for _ in range(ROUNDS)]
        lowest, mine = (min(column) * 1e6 for column in zip(*rounds, strict=True))
        print(f"pair, synchronous={synchronous:7} floor {lowest:7.1f} us   ours {mine:7.1f} us   {mine / lowest:.2f} x")


def pass_to_and_fro(path: str) -> None:
    """In a child: take the lock again and again, and print when each acquire returned and each release began."""
    lock = leasehold.connect(f"sqlite:///{path}").lock("baton", ttl=10)
    for _ in range(HAND_OVERS):
        lease = lock.acquire(timeout=20)
        taken = time.monotonic()
        time.sleep(0.005)  # the other one is in the queue by now
        print("hold", repr(taken), repr(time.monotonic()))
        lease.release()


def wait_idly(path: str) -> None:
    """In a child: wait for a lock that is held, and print what that cost."""
    lock = leasehold.connect(f"sqlite:///{path}").lock("held")
    before = resource.getrusage(resource.RUSAGE_SELF)
    try:
        lock.acquire(timeout=IDLE_SECONDS)
    except leasehold.AcquireTimeout:
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(100 * cpu / IDLE_SECONDS, (after.ru_nvcsw - before.ru_nvcsw) / IDLE_SECONDS)


def hand_over(directory: Path) -> None:
    """Two processes pass a lock to and fro."""
    children = [_child("pass", directory / "passed") for _ in range(2)]
    holds = sorted(
        tuple(map(float, line.split()[1:]))
        for child in children
        for line in child.communicate()[0].splitlines()
        if line.startswith("hold")
    )
    delays = sorted(later[0] - earlier[1] for earlier, later in itertools.pairwise(holds))
    p50, p99 = (delays[int(len(delays) * share)] * 1000 for share in (0.5, 0.99))
    print(f"hand-over between processes: p50 {p50:.2f} ms, p99 {p99:.2f} ms")


def idle(directory: Path) -> None:
    """A waiter for a lock that stays held."""
    with leasehold.connect(f"sqlite:///{directory / 'idle'}").lock("held").hold():
        cpu, wakes = map(float, _child("idle", directory / "idle").communicate()[0].split())
    print(f"idle waiter: {cpu:.2f} % of a core, {wakes:.1f} wake-ups a second")


def _child(task: str, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, __file__, task, str(path)], stdout=subprocess.PIPE, text=True)


def main() -> None:
    """Print the figures."""
    if len(sys.argv) > 1:
        {"pass": pass_to_and_fro, "idle": wait_idly}[sys.argv[1]](sys.argv[2])
        return
    with tempfile.TemporaryDirectory() as name:
        for part in (pairs, hand_over, idle):
            part(Path(name))


if __name__ == "__main__":
    main()
