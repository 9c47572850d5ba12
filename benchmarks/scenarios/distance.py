"""P14: a store far away, behind a proxy that delays everything. There round trips decide, and nothing else.

The unit is the round trip itself: what an empty request takes through the same proxy in the same run.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.distances import handed_over, typical_ms
from benchmarks.etcd_locks import ETCD, ETCD3GW
from benchmarks.harness import Candidate, Role, Sample, measure
from benchmarks.mysql_locks import DLOCK, MARIADB
from benchmarks.nats_locks import NATS
from benchmarks.postgres_locks import POSTGRESQL
from benchmarks.redis_locks import PYTHON_REDIS_LOCK, REDIS, REDIS_PY
from benchmarks.redlock_locks import REDLOCK
from benchmarks.zookeeper_locks import KAZOO, ZOOKEEPER
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.harness import Settings, Table
    from benchmarks.library import Address, Connections, Library, Lock

__all__ = ["run"]

FIRST_USES = 4  # in which a library sets up what it needs
TO_JOIN = 0.2  # seconds that a waiter has to join the queue, besides what the distance costs


@dataclass(frozen=True, slots=True)
class Subject:
    """One store, and which kinds are measured there: for a pair, and for a hand-over."""

    library: Library
    pair: Sequence[str]
    hand_over: Sequence[str]


SUBJECTS = {
    "redis": Subject(REDIS, *[(REDIS.ours, REDIS_PY, PYTHON_REDIS_LOCK)] * 2),
    "redlock": Subject(REDLOCK, [kind for kind in REDLOCK.kinds if "asyncio" not in kind], ()),
    "postgresql": Subject(
        POSTGRESQL, (POSTGRESQL.ours, "pals", "sqlalchemy-dlock", "django-pglock"), (POSTGRESQL.ours, "pals")
    ),
    "mariadb": Subject(MARIADB, *[(MARIADB.ours, DLOCK)] * 2),
    "etcd": Subject(ETCD, (ETCD.ours, ETCD3GW), (ETCD.ours,)),
    "nats": Subject(NATS, *[(NATS.ours,)] * 2),
    "zookeeper": Subject(ZOOKEEPER, *[(ZOOKEEPER.ours, KAZOO, "tooz")] * 2),
}


def run(settings: Settings, store: str) -> Iterator[Table]:
    """Near and far: a pair, and a hand-over."""
    subject = SUBJECTS[store]
    library = subject.library
    if missing := library.why_no_server():
        yield measure(f"{library.store}, far away", [Candidate(library.ours, Role.OURS, None, missing)], settings)
        return
    with library.serve() as server:
        for delay in settings.pick((0.001, 0.010), (0.001,)):
            with ExitStack() as stack:
                proxies = [stack.enter_context(FaultProxy(address)) for address in library.addresses(server)]
                for proxy in proxies:
                    proxy.delay(delay, delay)
                yield from _at(settings, subject, server, [proxy.address for proxy in proxies], delay)


def _at(settings: Settings, subject: Subject, server: Any, addresses: list[Address], delay: float) -> Iterator[Table]:
    library = subject.library
    connections = [library.connect(server, addresses) for _ in range(2)]
    for what, target, kinds, candidate in (
        ("acquire and release", "2", subject.pair, _pair),
        ("from a release to the grant of a waiter", "at most 1.5", subject.hand_over, partial(_hand_over, delay=delay)),
    ):
        if not kinds:
            continue
        table = measure(
            f"{library.store}, {delay * 1000:g} ms each way: {what}",
            [_round_trip(settings, library, server, addresses)]
            + [candidate(settings, library, kind, connections) for kind in kinds],
            settings,
            unit="ms",
            by="median",
        )
        table.notes.append("the ratio is the number of round trips")
        table.targets.append(f"{target} round trips")
        yield table
    for each in connections:
        each.close()


def _round_trip(settings: Settings, library: Library, server: Any, addresses: list[Address]) -> Candidate:
    what, ask, close = library.round_trip(server, addresses)
    count = settings.pick(50, 2)
    return Candidate(f"one round trip ({what})", Role.FLOOR, lambda: Sample(typical_ms(ask, count)), close=close)


def _pair(settings: Settings, library: Library, kind: str, connections: list[Connections]) -> Candidate:
    def candidate(make: Callable[[str], Lock], role: Role) -> Candidate:
        lock = make("far")
        count = settings.pick(30, 2)

        def sample() -> Sample:
            lock.pairs(FIRST_USES)
            return Sample(typical_ms(partial(lock.pairs, 1), count))

        return Candidate(kind, role, sample, close=lock.close)

    return library.candidate(kind, connections[0], candidate)


def _hand_over(
    settings: Settings, library: Library, kind: str, connections: list[Connections], *, delay: float
) -> Candidate:
    """One client releases while another waits."""

    def candidate(make: Callable[[str], Lock], role: Role) -> Candidate:
        name = f"passed-{kind}"
        holder, waiter = make(name), library.make(kind, connections[1], f"{name}-{list(library.kinds).index(kind)}")
        count, pause = settings.pick(12, 2), TO_JOIN + 20 * delay

        def close() -> None:
            holder.close()
            waiter.close()

        return Candidate(kind, role, lambda: handed_over(holder, waiter, count, pause), close=close)

    return library.candidate(kind, connections[0], candidate)
