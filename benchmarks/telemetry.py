"""What metrics and spans cost a pair of acquire and release on Redis: `python -m benchmarks.telemetry`.

The same lock is taken by clients that report in different ways, a turn of pairs each, so that every way meets the same
moments of the machine. A turn has as many pairs as a batch of telemetry has values, so that every turn pays for
counting its own. The CPU is that of the whole process, all threads of it, and without the server's: threads share the
interpreter, so that what one spends another waits for. Figures are the least over all turns: what a pair takes while
nobody else wants the processor. The last line is what the OpenTelemetry API itself takes for the two spans of a pair.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from prometheus_client import CollectorRegistry

import leasehold
from leasehold import telemetry
from leasehold.telemetry.durations import BATCH
from verification.lab.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["main"]

PAIRS = BATCH  # in one turn
WAYS: dict[str, Callable[[leasehold.Client], object]] = {
    "off": lambda _: None,
    "a listener that does nothing": lambda client: client.on_event(lambda _: None),
    "prometheus": lambda client: telemetry.prometheus(client, registry=CollectorRegistry()),
    "opentelemetry, metrics": lambda client: telemetry.opentelemetry(
        client, meter_provider=MeterProvider([InMemoryMetricReader()]), spans=False
    ),
    "opentelemetry, spans not sampled": lambda client: telemetry.opentelemetry(
        client,
        meter_provider=MeterProvider([InMemoryMetricReader()]),
        tracer_provider=TracerProvider(sampler=ALWAYS_OFF),
    ),
    "opentelemetry, spans sampled": lambda client: telemetry.opentelemetry(
        client,
        meter_provider=MeterProvider([InMemoryMetricReader()]),
        tracer_provider=TracerProvider(sampler=ALWAYS_ON),
    ),
}


class Turn(NamedTuple):
    """Microseconds for one pair."""

    took: float
    cpu: float


def turn(pair: Callable[[], object]) -> Turn:
    """A batch of pairs."""
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(PAIRS):
        pair()
    return Turn((time.perf_counter() - began) / PAIRS * 1e6, (time.process_time() - cpu) / PAIRS * 1e6)


def two_spans() -> Callable[[], object]:
    """What is asked of the API for a pair, and nothing else."""
    start = TracerProvider(sampler=ALWAYS_ON).get_tracer("bench").start_span
    facts: dict[str, str | int] = {
        "leasehold.name": "x",
        "leasehold.group": "g",
        "leasehold.mode": "exclusive",
        "leasehold.fence": 1,
    }

    def spans() -> None:
        now = time.time_ns()
        start("leasehold.acquire g", attributes=facts, start_time=now).end(now)
        span = start("leasehold.hold g", attributes=facts, start_time=now)
        span.set_attribute("leasehold.end", "released")
        span.end()

    return spans


def measure(url: str, rounds: int) -> dict[str, list[Turn]]:
    """Every way in turn, so many times."""
    taken: dict[str, list[Turn]] = {way: [] for way in WAYS}
    clients = {way: leasehold.connect(url) for way in WAYS}
    try:
        for way, client in clients.items():
            WAYS[way](client)
        locks = {way: client.lock(f"bench:{way}", group="bench:{way}") for way, client in clients.items()}
        for number in range(rounds + 1):
            for way, lock in locks.items():
                took = turn(lambda lock=lock: lock.acquire().release())  # type: ignore[misc]
                if number:  # the first opens connections
                    taken[way].append(took)
    finally:
        for client in clients.values():
            client.close()
    return taken


def _figures(turns: list[Turn]) -> tuple[float, float]:
    return min(turn.took for turn in turns), min(turn.cpu for turn in turns)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    with RedisServer() as server:
        taken = measure(server.url, options.rounds)
    sys.stdout.write(f"{'way':<36}{'µs a pair':>10}{'more':>8}{'':>8}{'µs CPU':>9}{'more':>8}{'':>8}\n")
    floor, least = _figures(taken["off"])
    for way, turns in taken.items():
        took, cpu = _figures(turns)
        line = f"{way:<36}{took:>10.1f}{took - floor:>8.1f}{took / floor - 1:>8.1%}"
        sys.stdout.write(f"{line}{cpu:>9.1f}{cpu - least:>8.1f}{cpu / least - 1:>8.1%}\n")
    spans = two_spans()
    took, cpu = _figures([turn(spans) for _ in range(options.rounds)])
    sys.stdout.write(f"{'two spans, and no lock':<36}{'':>10}{took:>8.1f}{took / floor:>8.1%}{'':>9}{cpu:>8.1f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
