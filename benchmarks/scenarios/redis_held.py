"""P5: many leases held by one client on Redis: what renewing them costs, and whether lost packets cost a lease."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.contender import Contender
from benchmarks.harness import Candidate, Role, Sample, measure
from benchmarks.packet_loss import lossy
from benchmarks.packet_loss import why_missing as why_no_loss
from benchmarks.redis_locks import OURS, TTL
from benchmarks.redis_server import RedisServer
from benchmarks.redis_server import why_missing as why_no_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Settings, Table

__all__ = ["run"]

LOSS = 0.02
TARGETS = "under 5 % of a core, one worker, under 3 KB each, none lost"


def run(settings: Settings) -> Iterator[Table]:
    """Both faces, on a good network and on a bad one. Each runs for minutes in all, so there is one round only."""
    size = settings.pick(10_000, 50)
    title = f"Redis, {size:,} leases held by one client, ttl {TTL} s"
    once = replace(settings, rounds=1)
    if missing := why_no_server():
        yield measure(title, [Candidate(OURS, Role.OURS, None, missing)], once)
        return
    server = RedisServer()
    try:
        candidates = [
            _held(settings, server, f"{face}{', 2 % of packets lost' if loss else ''}", face, size, loss)
            for loss in (0.0, LOSS)
            for face in ("threads", "asyncio")
        ]
        table = measure(title, candidates, once, unit="% of a core", by="median")
    finally:
        server.close()
    table.targets.append(TARGETS)
    yield table


def _held(settings: Settings, server: RedisServer, name: str, face: str, size: int, loss: float) -> Candidate:
    if loss and (missing := why_no_loss()):
        return Candidate(name, Role.OURS, None, missing)
    seconds: float = settings.pick(2.0 * TTL if loss else 1.0 * TTL, 0.2)
    task = "hold in threads" if face == "threads" else "hold in tasks"

    def sample() -> Sample:
        holder = Contender(task, OURS, server.port, size, seconds, module="benchmarks.redis_contender").started()
        with lossy(server.port, loss):
            before = server.commands()
            holder.tell("begin")
            share, threads, failed, lost, bytes_each = holder.answer()
            renewed = server.commands() - before
        holder.close()
        facts = {
            "bytes each": bytes_each,
            "threads": threads,
            "renewals a second": renewed / seconds,
            "failed": failed,
            "lost": lost,
        }
        return Sample(share, facts)

    return Candidate(name, Role.OURS, sample)
