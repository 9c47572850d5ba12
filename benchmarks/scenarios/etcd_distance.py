"""P14 on etcd: far away, behind a proxy that delays everything. There round trips decide, and nothing else.

The unit is the round trip itself: what a read takes through the same proxy in the same run.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import leasehold
from benchmarks.distances import typical_ms
from benchmarks.etcd_locks import ETCD3GW, OURS, Bare, make, start, why_missing, why_no_server
from benchmarks.harness import Candidate, Role, Sample, measure, percentile
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Settings, Table

__all__ = ["run"]


def run(settings: Settings) -> Iterator[Table]:
    """Near and far: a pair, and a hand-over."""
    if missing := why_no_server():
        yield measure("etcd, far away", [Candidate(OURS, Role.OURS, None, missing)], settings)
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
    candidates = [_read(settings, port), _pair(settings, OURS, port), _pair(settings, ETCD3GW, port)]
    table = measure(f"etcd, {where}: acquire and release", candidates, settings, unit="ms", by="median")
    table.notes.append("the ratio is the number of round trips; target: 2")
    yield table
    candidates = [_read(settings, port), _hand_over(settings, port)]
    title = f"etcd, {where}: from a release to the grant of a waiter"
    table = measure(title, candidates, settings, unit="ms", by="median")
    table.notes.append("the ratio is the number of round trips; target: at most 1.5")
    yield table


def _read(settings: Settings, port: int) -> Candidate:
    client = Bare(f"127.0.0.1:{port}", b"bench/far")
    count = settings.pick(50, 2)

    def sample() -> Sample:
        return Sample(typical_ms(client.read, count))

    return Candidate("one round trip (a read)", Role.FLOOR, sample, close=client.close)


def _pair(settings: Settings, kind: str, port: int) -> Candidate:
    role = Role.OURS if kind == OURS else Role.PEER
    if missing := why_missing(kind):
        return Candidate(kind, role, None, missing)
    lock = make(kind, "127.0.0.1", port, f"far-{kind}")
    count = settings.pick(30, 2)

    def sample() -> Sample:
        lock.pairs(1)  # whatever is set up with the first use
        return Sample(typical_ms(lambda: lock.pairs(1), count))

    return Candidate(kind, role, sample, close=lock.close)


def _hand_over(settings: Settings, port: int) -> Candidate:
    """One client releases while another waits."""
    clients = [leasehold.connect(f"etcd://127.0.0.1:{port}") for _ in range(2)]
    count = settings.pick(15, 2)

    def once() -> float:
        granted: list[float] = []

        def wait() -> None:
            lease = clients[1].lock("passed").acquire()
            granted.append(time.monotonic())
            lease.release()

        lease = clients[0].lock("passed").acquire()
        thread = threading.Thread(target=wait)
        thread.start()
        while len(getattr(clients[0].inspect("passed"), "waiting", ())) < 1:
            time.sleep(0.01)
        time.sleep(settings.pick(0.2, 0.1))  # its watch is there by then
        released = time.monotonic()
        lease.release()
        thread.join()
        return granted[0] - released

    def sample() -> Sample:
        delays = [once() for _ in range(count)]
        return Sample(1000 * percentile(delays, 0.5), {"longest ms": 1000 * max(delays)})

    def close() -> None:
        for client in clients:
            client.close()

    return Candidate(OURS, Role.OURS, sample, close=close)
