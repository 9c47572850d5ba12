"""P1, P3, P8, P9, P10, P15, P16: one thread and no other client. Ours, the smallest program, other libraries."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.etcd_locks import ASYNC_FLOOR as ASYNC_TRANSACTIONS
from benchmarks.etcd_locks import ETCD, ETCD3GW
from benchmarks.etcd_locks import FLOOR as TRANSACTIONS
from benchmarks.etcd_locks import OURS_ASYNC as ETCD_ASYNC
from benchmarks.etcd_locks import Bare as BareEtcd
from benchmarks.etcd_locks import BareAsync as BareAsyncEtcd
from benchmarks.harness import Candidate, Role, measure, timed
from benchmarks.mysql_locks import FLOOR as ROW_STATEMENTS
from benchmarks.mysql_locks import MARIADB, OURS_ASYNC
from benchmarks.mysql_locks import serve as mariadb_server
from benchmarks.nats_locks import FLOOR as DOCUMENTS
from benchmarks.nats_locks import NATS
from benchmarks.nats_locks import Bare as BareNats
from benchmarks.postgres_locks import FLOOR as STATEMENTS
from benchmarks.postgres_locks import POSTGRESQL
from benchmarks.postgres_locks import serve as postgres_server
from benchmarks.redis_locks import REDIS, REDIS_PY, Connections
from benchmarks.redis_server import BareClient, RedisServer, ScriptClient
from benchmarks.redlock_locks import OURS as FIVE_NODES
from benchmarks.redlock_locks import REDLOCK, REDLOCK_PY
from benchmarks.redlock_locks import Bare as BareRedlock
from benchmarks.zookeeper_locks import KAZOO, ZOOKEEPER, KazooFloor, OwnFloor
from verification.lab.redlock import RedlockNodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.harness import Settings, Table
    from benchmarks.library import Library

    Titled = tuple[str, Sequence[Candidate]]

__all__ = ["run"]

SCRIPTS = "two bare scripts, the first mints a fence"
KAZOO_CALLS, OWN_CALLS = "create + listing, delete: kazoo's calls", "the same over our connection"
SINGLE, BARE = "leasehold, one Redis", "five bare sockets, our scripts, all answers waited for"
ONE_DEAD = f"{FIVE_NODES}, one of them dead"


@dataclass(frozen=True, slots=True)
class Target:
    """What a row is compared with, in words, and what is wanted."""

    other: str
    words: str
    goal: str
    inverted: bool = False  # how much faster, not how much slower
    row: str = ""  # empty: ours

    def notes(self, table: Table, ours: str) -> list[str]:
        """One sentence; none if one of the two could not run."""
        figure, other = table.row(self.row or ours).best, table.row(self.other).best
        if not figure or not other:
            return []
        ratio = other / figure if self.inverted else figure / other
        return [f"{ratio:.2f} x {self.words}"]


@dataclass(frozen=True, slots=True)
class Subject:
    """One store: its tables, and the targets of each."""

    library: Library
    title: str
    tables: Callable[[Settings], Iterator[Titled]]
    targets: Sequence[Target]
    note: str = ""


def run(settings: Settings, store: str) -> Iterator[Table]:
    """The tables of this store."""
    subject = SUBJECTS[store]
    ours = subject.library.ours
    if missing := subject.library.why_no_server():
        yield measure(subject.title, [Candidate(ours, Role.OURS, None, missing)], settings)
        return
    for more, candidates in subject.tables(settings):
        table = measure(subject.title + more, candidates, settings)
        table.notes += [note for target in subject.targets for note in target.notes(table, ours)]
        table.targets += [f"{target.goal}, {target.words}" for target in subject.targets]
        table.notes += [subject.note] if subject.note else []
        yield table


def _every_kind(
    library: Library, settings: Settings, floors: Callable[[str, int], list[Candidate]]
) -> Iterator[Titled]:
    """The floors, and every kind, on one server."""
    with library.serve() as server:
        ((host, port),) = library.addresses(server)
        connections = library.connect(server, [(host, port)])
        kinds = [library.pairs(settings, kind, connections) for kind in library.kinds]
        yield "", [*floors(host, port), *kinds]
        connections.close()


def _etcd(settings: Settings) -> Iterator[Titled]:
    def floors(host: str, port: int) -> list[Candidate]:
        bare, on_a_loop = BareEtcd(f"{host}:{port}"), BareAsyncEtcd(f"{host}:{port}")
        return [
            timed(TRANSACTIONS, Role.FLOOR, bare.pairs, settings, close=bare.close),
            timed(ASYNC_TRANSACTIONS, Role.PART, on_a_loop.pairs, settings, close=on_a_loop.close),
        ]

    return _every_kind(ETCD, settings, floors)


def _nats(settings: Settings) -> Iterator[Titled]:
    def floors(host: str, port: int) -> list[Candidate]:
        bare = BareNats(host, port)
        return [timed(DOCUMENTS, Role.FLOOR, bare.pairs, settings, close=bare.close)]

    return _every_kind(NATS, settings, floors)


def _zookeeper(settings: Settings) -> Iterator[Titled]:
    def floors(_: str, port: int) -> list[Candidate]:
        bare, own = KazooFloor(port), OwnFloor(port)
        return [
            timed(KAZOO_CALLS, Role.FLOOR, bare.pairs, settings, close=bare.close),
            timed(OWN_CALLS, Role.PART, own.pairs, settings, close=own.close),
        ]

    return _every_kind(ZOOKEEPER, settings, floors)


def _postgresql(settings: Settings) -> Iterator[Titled]:
    """Without waiting for the disk, what client and server compute is compared; with it, as it is in production."""
    for fsync in ("off", "on"):
        with postgres_server(fsync=fsync, full_page_writes="on") as server:
            yield from _floors_first(POSTGRESQL, settings, server, f", fsync {fsync}")


def _mariadb(settings: Settings) -> Iterator[Titled]:
    """The same: a log that is written in memory at each commit, then one that is on the disk before each answer."""
    for flush, is_safe in (("2", False), ("1", True)):
        options = {"innodb_flush_log_at_trx_commit": flush, "innodb_doublewrite": "1"}
        with mariadb_server(on_disk=is_safe, **options) as server:
            more = f", innodb_flush_log_at_trx_commit={flush}, files {'on disk' if is_safe else 'in memory'}"
            yield from _floors_first(MARIADB, settings, server, more)


def _floors_first(library: Library, settings: Settings, server: Any, title: str) -> Iterator[Titled]:
    """Every kind on a server."""
    connections = library.connect(server, library.addresses(server))
    kinds = sorted(library.kinds, key=lambda kind: library.kinds[kind].role is not Role.FLOOR)
    yield title, [library.pairs(settings, kind, connections) for kind in kinds]
    connections.close()


def _redlock(settings: Settings) -> Iterator[Titled]:
    with ExitStack() as stack:
        nodes, wounded = (stack.enter_context(RedlockNodes(5, max_ttl=60)) for _ in range(2))
        wounded.servers[2].kill()
        whole, hurt = (REDLOCK.connect(each, REDLOCK.addresses(each)) for each in (nodes, wounded))
        single = Connections(nodes.servers[0].port)
        for each in (whole, hurt, single):
            stack.callback(each.close)
        bare = BareRedlock(nodes)
        one, dead = (lib.pairs(settings, lib.ours, each) for lib, each in ((REDIS, single), (REDLOCK, hurt)))
        one.name, one.role, dead.name = SINGLE, Role.FLOOR, ONE_DEAD
        floor = timed(BARE, Role.FLOOR, bare.pairs, settings, close=bare.close)
        ours, *others = (REDLOCK.pairs(settings, kind, whole) for kind in REDLOCK.kinds)
        yield "", [one, floor, ours, dead, *others]


def _redis(settings: Settings) -> Iterator[Titled]:
    """All of them with cores as they come; then the floor, ours and redis-py where their place is fixed."""
    server = RedisServer()
    connections = Connections(server.port)
    try:
        ours, *peers = (REDIS.pairs(settings, kind, connections) for kind in REDIS.kinds)
        bare = BareClient(server.port)
        without = timed("SET NX and DEL, without fence", Role.FLOOR, bare.pairs, settings, close=bare.close)
        yield "", [_scripts(settings, server), without, ours, _held(settings, connections), *peers]
        for where, (client_on, server_on) in _places().items():
            around = partial(server.pinned, client_on=client_on, server_on=server_on)
            kinds = [REDIS.pairs(settings, kind, connections, around) for kind in (REDIS.ours, REDIS_PY)]
            yield f", {where}", [_scripts(settings, server, around), *kinds]
    finally:
        connections.close()
        server.close()


def _places() -> dict[str, tuple[set[int], set[int]]]:
    """Where client and server may run. What waking another core costs differs a lot between machines."""
    first, *others = sorted(os.sched_getaffinity(0))
    apart = {"a core for each": ({first}, set(others))} if others else {}
    return {"both on one core": ({first}, {first}), **apart}


def _scripts(
    settings: Settings,
    server: RedisServer,
    around: Callable[[Callable[[int], None]], Callable[[int], None]] = lambda run: run,
) -> Candidate:
    client = ScriptClient(server.port)
    return timed(SCRIPTS, Role.FLOOR, around(client.pairs), settings, close=client.close)


def _held(settings: Settings, connections: Connections) -> Candidate:
    lock = connections.ours.lock("pair-held")

    def pairs(count: int) -> None:
        for _ in range(count):
            with lock.hold():
                pass

    return timed("leasehold, with hold()", Role.OURS, pairs, settings)


SUBJECTS = {
    "redis": Subject(
        REDIS,
        "Redis, uncontended pair, one thread",
        _redis,
        (
            Target(SCRIPTS, "the two bare scripts", "at most 1.25 x"),
            Target(REDIS_PY, f"as fast as {REDIS_PY}", "at least 1.3 x", inverted=True),
        ),
    ),
    "redlock": Subject(
        REDLOCK,
        "Redlock, uncontended pair, one thread",
        _redlock,
        (
            Target(SINGLE, "our single node", "at most 2.5 x"),
            Target(SINGLE, "our single node for the bare sockets", "none; it is the floor", row=BARE),
            Target(REDLOCK_PY, "as fast as redlock-py", "at least 4 x", inverted=True),
            Target(FIVE_NODES, "five nodes that live, with a dead one", "no dearer", row=ONE_DEAD),
        ),
    ),
    "etcd": Subject(
        ETCD,
        "etcd, uncontended pair, one thread",
        _etcd,
        (
            Target(TRANSACTIONS, "the two bare transactions", "at most 1.3 x"),
            Target(ASYNC_TRANSACTIONS, "the same two on asyncio", "at most 1.3 x", row=ETCD_ASYNC),
            Target(ETCD3GW, f"as fast as {ETCD3GW}", "at least 3 x", inverted=True),
        ),
    ),
    "nats": Subject(
        NATS,
        "NATS, uncontended pair, one thread",
        _nats,
        (Target(DOCUMENTS, "the bare reads and swaps", "at most 1.3 x"),),
    ),
    "zookeeper": Subject(
        ZOOKEEPER,
        "ZooKeeper, uncontended pair, one thread",
        _zookeeper,
        (
            Target(KAZOO_CALLS, "the floor", "at most 1.15 x"),
            Target(KAZOO, f"as fast as {KAZOO}", "faster", inverted=True),
            Target(OWN_CALLS, "the same calls over our own connection", "none; it shows what the protocol adds"),
        ),
    ),
    "postgresql": Subject(
        POSTGRESQL,
        "PostgreSQL, uncontended pair",
        _postgresql,
        (Target(STATEMENTS, "the two bare statements", "at most 1.25 x"),),
        "the peers keep no row and give no fence, so they do not wait for the disk",
    ),
    "mariadb": Subject(
        MARIADB,
        "MariaDB, uncontended pair",
        _mariadb,
        (
            Target(ROW_STATEMENTS, "the two bare statements", "at most 1.25 x"),
            Target(ROW_STATEMENTS, "the two bare statements with asyncio", "at most 1.25 x", row=OURS_ASYNC),
        ),
        "GET_LOCK and sqlalchemy-dlock keep no row and give no fence, so they do not wait for the disk",
    ),
}
