"""P14 for Redlock: five nodes far away, each behind a proxy that delays everything. There round trips decide.

The unit is the round trip itself: what a `PING` takes through one of the proxies in the same run.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks.harness import Candidate, Role, Sample, measure, percentile
from benchmarks.redis_server import BareClient
from benchmarks.redis_server import why_missing as why_no_server
from benchmarks.redlock_locks import KINDS, OURS, Ours, make, why_missing
from verification.lab.proxy import FaultProxy
from verification.lab.redlock import RedlockNodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.harness import Settings, Table

__all__ = ["run"]

PING = b"*1\r\n$4\r\nPING\r\n"


def run(settings: Settings) -> Iterator[Table]:
    """Near and far."""
    if missing := why_no_server():
        yield measure("Redlock, far away", [Candidate(OURS, Role.OURS, None, missing)], settings)
        return
    for delay in settings.pick((0.001, 0.010), (0.001,)):
        with RedlockNodes(5, max_ttl=60, answer_timeout=0.5) as nodes, ExitStack() as stack:
            proxies = [stack.enter_context(FaultProxy(server.address)) for server in nodes.servers]
            for proxy in proxies:
                proxy.delay(delay, delay)
            yield _at(settings, nodes.url([proxy.address for proxy in proxies]), [p.port for p in proxies], delay)


def _at(settings: Settings, url: str, ports: list[int], delay: float) -> Table:
    client = BareClient(ports[0])
    ours = Ours(url)
    candidates = [
        _timed(settings, "one round trip (PING)", Role.FLOOR, lambda: client.ask(PING), client.close),
        _timed(settings, OURS, Role.OURS, lambda: ours.run(1), ours.close),
    ]
    for kind in KINDS:
        if missing := why_missing(kind):
            candidates.append(Candidate(kind, Role.PEER, None, missing))
        else:
            peer = make(kind, ports)
            candidates.append(_timed(settings, kind, Role.PEER, lambda peer=peer: peer.run(1), peer.close))  # type: ignore[misc]
    table = measure(
        f"Redlock, five nodes, {delay * 1000:g} ms each way: acquire and release",
        candidates,
        settings,
        unit="ms",
        by="median",
    )
    table.notes.append("the ratio is the number of round trips; target: 2")
    return table


def _timed(
    settings: Settings, name: str, role: Role, action: Callable[[], object], close: Callable[[], object]
) -> Candidate:
    count = settings.pick(30, 2)

    def clocked() -> float:
        started = time.monotonic()
        action()
        return time.monotonic() - started

    def sample() -> Sample:
        action()  # whatever is set up with the first use
        return Sample(1000 * percentile([clocked() for _ in range(count)], 0.5))

    return Candidate(name, role, sample, close=close)
