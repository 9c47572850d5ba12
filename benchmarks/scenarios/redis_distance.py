"""P14: Redis far away, behind a proxy that delays everything. There round trips decide, and nothing else.

The unit is the round trip itself: what a `PING` takes through the same proxy in the same run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.distances import handed_over, typical_ms
from benchmarks.harness import Candidate, Role, Sample, measure
from benchmarks.redis_locks import OURS, PYTHON_REDIS_LOCK, REDIS_PY, Connections, make, why_missing
from benchmarks.redis_server import BareClient, RedisServer
from benchmarks.redis_server import why_missing as why_no_server
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Settings, Table

__all__ = ["run"]

ORDER = (OURS, REDIS_PY, PYTHON_REDIS_LOCK)
PING = b"*1\r\n$4\r\nPING\r\n"


def run(settings: Settings) -> Iterator[Table]:
    """Near and far: a pair, and a hand-over."""
    if missing := why_no_server():
        yield measure("Redis, far away", [Candidate(OURS, Role.OURS, None, missing)], settings)
        return
    server = RedisServer()
    try:
        for delay in settings.pick((0.001, 0.010), (0.001,)):
            with FaultProxy(server.address) as proxy:
                proxy.delay(delay, delay)
                yield from _at(settings, proxy.port, delay)
    finally:
        server.close()


def _at(settings: Settings, port: int, delay: float) -> Iterator[Table]:
    where = f"{delay * 1000:g} ms each way"
    connections = [Connections(port), Connections(port)]
    table = measure(
        f"Redis, {where}: acquire and release",
        [_ping(settings, port), *(_pair(settings, kind, connections[0]) for kind in ORDER)],
        settings,
        unit="ms",
        by="median",
    )
    table.notes.append("the ratio is the number of round trips; target: 2")
    yield table
    table = measure(
        f"Redis, {where}: from a release to the grant of a waiter",
        [_ping(settings, port), *(_hand_over(settings, kind, connections) for kind in ORDER)],
        settings,
        unit="ms",
        by="median",
    )
    table.notes.append("the ratio is the number of round trips; target: at most 1.5")
    yield table
    for each in connections:
        each.close()


def _ping(settings: Settings, port: int) -> Candidate:
    client = BareClient(port)
    count = settings.pick(50, 2)

    def sample() -> Sample:
        return Sample(typical_ms(lambda: client.ask(PING), count))

    return Candidate("one round trip (PING)", Role.FLOOR, sample, close=client.close)


def _pair(settings: Settings, kind: str, connections: Connections) -> Candidate:
    role = Role.OURS if kind == OURS else Role.PEER
    if missing := why_missing(kind):
        return Candidate(kind, role, None, missing)
    lock = make(kind, connections, f"far-{ORDER.index(kind)}")
    count = settings.pick(30, 2)

    def pair() -> None:
        lock.take()
        lock.give()

    def sample() -> Sample:
        pair()  # whatever is set up with the first use
        return Sample(typical_ms(pair, count))

    return Candidate(kind, role, sample)


def _hand_over(settings: Settings, kind: str, connections: list[Connections]) -> Candidate:
    """One client releases while another waits."""
    role = Role.OURS if kind == OURS else Role.PEER
    if missing := why_missing(kind):
        return Candidate(kind, role, None, missing)
    count = settings.pick(15, 2)
    name = f"passed-{ORDER.index(kind)}"

    pause = settings.pick(0.25, 0.1)

    def sample() -> Sample:
        return handed_over(lambda: (make(kind, connections[0], name), make(kind, connections[1], name)), count, pause)

    return Candidate(kind, role, sample)
