"""P12: a pair must not cost more when many other names are held, nor a grant when many wait for it.

Every claim on ZooKeeper lists its siblings once, so a claim that joins a long queue costs more; a hand-over does not
list at all.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import leasehold
from benchmarks.etcd_locks import ETCD
from benchmarks.harness import Candidate, Role, Sample, measure, timed
from benchmarks.mysql_locks import MARIADB
from benchmarks.nats_locks import NATS
from benchmarks.postgres_locks import POSTGRESQL
from benchmarks.redis_locks import REDIS
from benchmarks.redlock_locks import REDLOCK
from benchmarks.zookeeper_locks import ZOOKEEPER
from leasehold._backends.etcd.queue import MOST_IN_STORE
from leasehold.values import Capability

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from benchmarks.harness import Settings, Table
    from benchmarks.library import Library

    UrlOf = Callable[[str], str]  # how to name a fresh store of its kind

__all__ = ["queue_of_tasks", "run", "stores"]

TO_10_000, TO_1_000 = (1, 10, 100, 1_000, 10_000), (1, 10, 100, 1_000)


@dataclass(frozen=True, slots=True)
class Subject:
    """One store: how to name a fresh part of it, and how far it grows."""

    library: Library
    url: Callable[[Any, str], str]
    held: Sequence[int] = TO_1_000
    used: Sequence[int] = ()
    waiting: Sequence[int] = TO_1_000
    most_queued: int | None = None  # the others wait inside the client
    options: Mapping[str, Any] = field(default_factory=dict)  # of the client


SEVERAL = {
    "Redis": (REDIS, lambda server, name: f"{server.url}?prefix={name}:"),
    "PostgreSQL": (POSTGRESQL, lambda server, name: f"{server.url()}?schema={name.replace('-', '_')}"),
}
SUBJECTS = {
    "redlock": Subject(REDLOCK, lambda nodes, _: nodes.url(), held=TO_10_000, waiting=(), options={"ttl": 300}),
    "nats": Subject(NATS, lambda server, name: f"{server.url}?bucket={name}", waiting=(1, 10, 100)),
    "mariadb": Subject(MARIADB, lambda server, name: server.make_database(name), held=TO_10_000, waiting=(1, 10, 100)),
    "zookeeper": Subject(ZOOKEEPER, lambda server, name: server.url(f"/{name}")),
    "etcd": Subject(
        ETCD,
        lambda server, _: server.url,
        used=(0, 1_000, 10_000),
        most_queued=MOST_IN_STORE - 1,
        options={"ttl": 120},
    ),
}


def run(settings: Settings, store: str) -> Iterator[Table]:
    """Held names, used names, then waiters."""
    if store == "several":
        yield from _several(settings)
        return
    subject = SUBJECTS[store]
    library = subject.library
    if missing := library.why_no_server():
        yield measure(f"{library.store}: growth", [Candidate(library.ours, Role.OURS, None, missing)], settings)
        return
    with library.serve() as server:

        def url_of(name: str) -> str:
            return subject.url(server, name)

        yield _held_names(settings, library.store, url_of, subject.held, subject.options)
        if subject.used:
            uses = settings.pick(subject.used, (0, 10))
            candidates = [_used(settings, url_of(f"used-{size}"), size) for size in uses]
            yield measure(f"{library.store}: pair on a name that was used before", candidates, settings)
        if subject.waiting:
            yield _queues(settings, library.store, url_of, subject)


def _several(settings: Settings) -> Iterator[Table]:
    with stores(settings) as urls:
        for store, url_of in urls.items():
            yield _held_names(settings, store, url_of, TO_10_000, {})
        for store, url_of in urls.items():
            yield _queues(settings, store, url_of, None)


@contextmanager
def stores(settings: Settings) -> Iterator[dict[str, UrlOf]]:
    """For each store, how to name a fresh one of it; Redis and PostgreSQL only where there is a server."""
    urls: dict[str, UrlOf] = {
        "memory": lambda _: "memory://",
        "SQLite": lambda name: f"sqlite:///{settings.directory / name}",
    }
    with ExitStack() as stack:
        for store, (library, url) in SEVERAL.items():
            if not library.why_no_server():
                server = stack.enter_context(library.serve())
                urls[store] = lambda name, server=server, url=url: url(server, name)  # type: ignore[misc]
        yield urls


# --- a pair


def _held_names(
    settings: Settings, store: str, url_of: UrlOf, sizes: Sequence[int], options: Mapping[str, Any]
) -> Table:
    sizes = settings.pick(sizes, (1, 10))
    candidates = [_held(settings, url_of(f"held-{size}"), size, options) for size in sizes]
    return measure(f"{store}: pair beside held names", candidates, settings)


def _pairs(settings: Settings, client: leasehold.Client, title: str, name: str) -> Candidate:
    lock = client.lock(name)

    def pairs(count: int) -> None:
        for _ in range(count):
            lock.acquire().release()

    return timed(title, Role.OURS, pairs, settings, close=client.close)


def _held(settings: Settings, url: str, size: int, options: Mapping[str, Any]) -> Candidate:
    client = leasehold.connect(url, namespace=f"held-{size}", **options)
    leases = [client.lock(f"held:{number}").acquire() for number in range(size)]
    candidate = _pairs(settings, client, f"{size:,} held", "bench")

    def close() -> None:
        for lease in leases:
            lease.release()
        client.close()

    candidate.close = close
    return candidate


def _used(settings: Settings, url: str, uses: int) -> Candidate:
    """By a client that came and went."""
    name = f"used {uses}"
    with leasehold.connect(url) as before:
        lock = before.lock(name)
        for _ in range(uses):
            lock.acquire().release()
    return _pairs(settings, leasehold.connect(url), f"{uses:,} uses before", name)


# --- a queue


def _queues(settings: Settings, store: str, url_of: UrlOf, subject: Subject | None) -> Table:
    sizes = settings.pick(TO_1_000 if subject is None else subject.waiting, (1, 10))
    candidates = [queue_of_tasks(settings, url_of, size + 1, f"{size:,} waiting", subject) for size in sizes]
    title = f"{store}: grants with a queue of asyncio tasks"
    return measure(title, candidates, settings, unit="grants a second", higher_is_better=True, by="median")


def queue_of_tasks(
    settings: Settings, url_of: UrlOf, size: int, name: str, subject: Subject | None = None
) -> Candidate:
    """Tasks of one process that take the same lock again and again."""
    seconds: float = settings.pick(1.0, 0.05)
    fresh = f"queue-{size}-{time.monotonic_ns()}"
    url = url_of(fresh)
    options = {} if subject is None else subject.options
    queued = size if subject is None or subject.most_queued is None else min(size, subject.most_queued)

    async def crowd() -> Sample:
        async with leasehold.connect_async(url, namespace=fresh, **options) as client:
            lock = client.lock("bench")
            counts = [0] * size
            end = 0.0

            async def contend(number: int) -> None:
                while True:
                    lease = await lock.acquire()
                    is_over = time.monotonic() >= end
                    await lease.release()
                    if is_over:
                        return
                    counts[number] += 1

            first = await lock.acquire()
            tasks = [asyncio.create_task(contend(number)) for number in range(size)]
            if (
                Capability.RANGES in client.capabilities
            ):  # they stand in line inside the client, one for all in the store
                await asyncio.sleep(settings.pick(1.0, 0.1))
            else:
                while len(getattr(await client.inspect("bench"), "waiting", ())) < queued:  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0.01)
            end = time.monotonic() + seconds
            await first.release()
            await asyncio.gather(*tasks)
        return Sample(sum(counts) / seconds, {"least/most": min(counts) / max(*counts, 1)})

    return Candidate(name, Role.OURS, lambda: asyncio.run(crowd()))
