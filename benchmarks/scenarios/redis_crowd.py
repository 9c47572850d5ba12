"""P6: a thousand waiters of one process on one name on Redis: how many connections and threads that takes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.contender import Contender
from benchmarks.harness import Candidate, Role, Sample, measure
from benchmarks.redis_contender import NAME
from benchmarks.redis_locks import OURS, PYTHON_REDIS_LOCK, REDIS_PY, Connections, make, why_missing
from benchmarks.redis_server import RedisServer
from benchmarks.redis_server import why_missing as why_no_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Settings, Table

__all__ = ["run"]

SETTLE = 0.5


def run(settings: Settings) -> Iterator[Table]:
    """Tasks, then threads."""
    size = settings.pick(1_000, 8)
    if missing := why_no_server():
        yield measure("Redis, many waiters", [Candidate(OURS, Role.OURS, None, missing)], settings)
        return
    server = RedisServer()
    try:
        for task, what, kinds in (
            ("wait in tasks", "asyncio tasks", (OURS, REDIS_PY)),
            ("wait in threads", "threads", (OURS, REDIS_PY, PYTHON_REDIS_LOCK)),
        ):
            candidates = [_crowd(settings, server, task, kind, size) for kind in kinds]
            title = f"Redis, {size:,} {what} of one process wait for one name"
            table = measure(title, candidates, settings, unit="connections", by="median")
            table.targets.append("at most two connections, and no thread for each waiter in asyncio")
            yield table
    finally:
        server.close()


def _crowd(settings: Settings, server: RedisServer, task: str, kind: str, size: int) -> Candidate:
    role = Role.OURS if kind == OURS else Role.PEER
    if missing := why_missing(kind):
        return Candidate(kind, role, None, missing)

    def sample() -> Sample:
        connections = Connections(server.port)
        holder = make(kind, connections, NAME)
        holder.take()
        crowd = Contender(task, kind, server.port, size, module="benchmarks.redis_contender").started()
        before = len(server.clients())
        crowd.tell("wait")
        waiting = _settled(server, before, settings.pick(SETTLE, 0.1))
        sent, begun = server.commands(), time.monotonic()
        time.sleep(settings.pick(2.0, 0.1))
        rate = (server.commands() - sent) / (time.monotonic() - begun) / size
        crowd.tell("how many threads")
        threads = crowd.answer()
        released = time.monotonic()
        holder.give()
        crowd.answer()
        took = time.monotonic() - released
        most = max(waiting, len(server.clients()) - before)
        crowd.close()
        connections.close()
        server.flush()
        facts = {"threads": threads, "commands a second each": rate, "all served in s": took}
        return Sample(most, facts)

    return Candidate(kind, role, sample)


def _settled(server: RedisServer, before: int, pause: float) -> int:
    """Wait until the number of connections has grown and does not change any more; by how many it has grown."""
    count, seen = before, len(server.clients())
    while seen != count or seen == before:
        time.sleep(pause)
        count, seen = seen, len(server.clients())
    return count - before
