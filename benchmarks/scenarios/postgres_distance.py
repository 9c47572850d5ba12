"""P14 for PostgreSQL: far away, behind a proxy that delays everything. There round trips decide, and nothing else.

The unit is the round trip itself: what `SELECT 1` takes through the same proxy in the same run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.distances import handed_over, typical_ms
from benchmarks.harness import Candidate, Role, Sample, measure
from benchmarks.postgres_locks import OURS, PEERS, make, round_trip, why_missing, why_no_server
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Settings, Table

__all__ = ["run"]


def run(settings: Settings) -> Iterator[Table]:
    """Near and far: a pair, and a hand-over."""
    if missing := why_no_server():
        yield measure("PostgreSQL, far away", [Candidate(OURS[0], Role.OURS, None, missing)], settings)
        return
    from verification.lab.postgres import PostgresServer, postgres_url  # noqa: PLC0415 - it needs psycopg

    with PostgresServer() as server:
        for delay in settings.pick((0.001, 0.010), (0.001,)):
            with FaultProxy(("127.0.0.1", server.port)) as proxy:
                proxy.delay(delay, delay)
                yield from _at(settings, postgres_url(proxy.port, "postgres", "postgres"), delay)


def _at(settings: Settings, url: str, delay: float) -> Iterator[Table]:
    where = f"{delay * 1000:g} ms each way"
    kinds = [OURS[0], *PEERS]
    table = measure(
        f"PostgreSQL, {where}: acquire and release",
        [_trip(settings, url), *(_pair(settings, kind, url) for kind in kinds)],
        settings,
        unit="ms",
        by="median",
    )
    table.notes.append("the ratio is the number of round trips; target: 2")
    yield table
    table = measure(
        f"PostgreSQL, {where}: from a release to the grant of a waiter",
        [_trip(settings, url), _hand_over(settings, OURS[0], url), _hand_over(settings, "pals", url)],
        settings,
        unit="ms",
        by="median",
    )
    table.notes.append("the ratio is the number of round trips; target: at most 1.5")
    yield table


def _trip(settings: Settings, url: str) -> Candidate:
    ask, close = round_trip(url)
    count = settings.pick(50, 2)

    def sample() -> Sample:
        return Sample(typical_ms(ask, count))

    return Candidate("one round trip (SELECT 1)", Role.FLOOR, sample, close=close)


def _pair(settings: Settings, kind: str, url: str) -> Candidate:
    role = Role.OURS if kind in OURS else Role.PEER
    if missing := why_missing(kind):
        return Candidate(kind, role, None, missing)
    lock = make(kind, url, f"far {kind}")
    count = settings.pick(30, 2)

    def pair() -> None:
        lock.take()
        lock.give()

    def sample() -> Sample:
        for _ in range(4):
            pair()  # whatever is set up with the first uses
        return Sample(typical_ms(pair, count))

    return Candidate(kind, role, sample, close=lock.close)


def _hand_over(settings: Settings, kind: str, url: str) -> Candidate:
    """One client releases while another waits."""
    role = Role.OURS if kind in OURS else Role.PEER
    if missing := why_missing(kind):
        return Candidate(kind, role, None, missing)
    count = settings.pick(15, 2)
    holder, waiter = make(kind, url, f"passed {kind}"), make(kind, url, f"passed {kind}")

    pause = settings.pick(0.4, 0.2)

    def sample() -> Sample:
        return handed_over(lambda: (holder, waiter), count, pause)

    def close() -> None:
        holder.close()
        waiter.close()

    return Candidate(kind, role, sample, close=close)
