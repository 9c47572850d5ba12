"""P14 on ZooKeeper: far away, behind a proxy that delays everything. There round trips decide, and nothing else.

The unit is the round trip itself: what a `sync` takes through the same proxy in the same run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.distances import handed_over, typical_ms
from benchmarks.harness import Candidate, Role, Sample, measure
from benchmarks.zookeeper_locks import KINDS, OURS, Connections, make, start, why_missing, why_no_server
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Settings, Table

__all__ = ["run"]


def run(settings: Settings) -> Iterator[Table]:
    """Near and far: a pair, and a hand-over."""
    if missing := why_no_server():
        yield measure("ZooKeeper, far away", [Candidate(OURS, Role.OURS, None, missing)], settings)
        return
    server = start()
    try:
        for delay in settings.pick((0.001, 0.010), (0.001,)):
            with FaultProxy((server.host, server.port)) as proxy:
                proxy.delay(delay, delay)
                yield from _at(settings, proxy.port, delay)
    finally:
        server.remove()


def _at(settings: Settings, port: int, delay: float) -> Iterator[Table]:
    where = f"{delay * 1000:g} ms each way"
    connections = [Connections(port), Connections(port)]
    for what, target, candidate in (
        ("acquire and release", "2", _pair),
        ("from a release to the grant of a waiter", "at most 1.5", _hand_over),
    ):
        table = measure(
            f"ZooKeeper, {where}: {what}",
            [_round_trip(settings, connections[0]), *(candidate(settings, kind, connections) for kind in KINDS)],
            settings,
            unit="ms",
            by="median",
        )
        table.notes.append(f"the ratio is the number of round trips; target: {target}")
        yield table
    for each in connections:
        each.close()


def _round_trip(settings: Settings, connections: Connections) -> Candidate:
    count = settings.pick(50, 2)

    def sample() -> Sample:
        client = connections.theirs
        return Sample(typical_ms(lambda: client.sync("/"), count))

    return Candidate("one round trip (sync)", Role.FLOOR, sample)


def _pair(settings: Settings, kind: str, connections: list[Connections]) -> Candidate:
    role = Role.OURS if kind == OURS else Role.PEER
    if missing := why_missing(kind):
        return Candidate(kind, role, None, missing)
    lock = make(kind, connections[0], f"far-{list(KINDS).index(kind)}")
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
    name = f"passed-{list(KINDS).index(kind)}"
    holder, waiter = make(kind, connections[0], name), make(kind, connections[1], name)

    pause = settings.pick(0.25, 0.1)

    def sample() -> Sample:
        return handed_over(lambda: (holder, waiter), count, pause)

    return Candidate(kind, role, sample)
