"""Our stores side by side: throughput, latency, hand-over, and what happens when a holder dies or is cut off.

One table for each column of the usual comparison of lock services, measured instead of repeated. All stores have the
servers of one host, without distance, so the figures compare what the stores themselves do.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

import leasehold
from benchmarks.contender import Contender
from benchmarks.harness import Candidate, Role, Sample, measure, percentile
from benchmarks.store_contender import LONGEST
from benchmarks.stores import Store, embedded, every_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.harness import Settings, Table

__all__ = ["run"]

TTL = 3.0  # of holders that die or are cut off; session stores round it up to what they can
TASKS = 16
FAULT_ROUNDS = 3
NO_NETWORK = "there is no network to cut"


def run(settings: Settings) -> Iterator[Table]:
    """A table for each column."""
    with ExitStack() as servers:
        stores = embedded(settings.directory) if settings.quick else every_store(settings.directory, servers)
        memory = Store("memory, one process", (), lambda _: "memory://stores")
        alone = [memory, *stores]
        yield _rates(settings, alone)
        yield _latencies(settings, alone)
        yield _hand_overs(settings, stores)
        yield from _after_crash(settings, stores)
        yield from _when_cut_off(settings, stores)


def _rates(settings: Settings, stores: Sequence[Store]) -> Table:
    seconds = settings.pick(1.0, 0.05)

    async def pairs(url: str) -> float:
        async with leasehold.connect_async(url) as client:
            done, end = 0, 0.0

            async def work(number: int) -> None:
                nonlocal done
                lock = client.lock(f"rate:{number}")
                while time.monotonic() < end:
                    async with lock.hold():
                        pass
                    done += 1

            for until in (0.1, seconds):  # what is set up with the first use is not measured
                began, done = time.monotonic(), 0
                end = began + until
                await asyncio.gather(*(work(number) for number in range(TASKS)))
            return done / (time.monotonic() - began)

    def candidate(store: Store) -> Candidate:
        return Candidate(store.name, Role.OURS, lambda: Sample(asyncio.run(pairs(store.url))))

    title = f"Throughput: {TASKS} tasks on {TASKS} names, one process"
    return _compared(
        measure(
            title,
            [candidate(store) for store in stores],
            settings,
            unit="pairs a second",
            higher_is_better=True,
            by="median",
        )
    )


def _latencies(settings: Settings, stores: Sequence[Store]) -> Table:
    count = settings.pick(300, 5)

    def candidate(store: Store) -> Candidate:
        client = leasehold.connect(store.url)
        lock = client.lock("latency")

        def sample() -> Sample:
            times = []
            for _ in range(count):
                asked = time.perf_counter()
                lock.acquire().release()
                times.append(1000 * (time.perf_counter() - asked))
            return Sample(percentile(times, 0.5), {"p99 ms": percentile(times, 0.99)})

        return Candidate(store.name, Role.OURS, sample, close=client.close)

    candidates = [candidate(store) for store in stores]
    return _compared(
        measure("Latency: uncontended acquire + release, p50", candidates, settings, unit="ms", by="median")
    )


def _hand_overs(settings: Settings, stores: Sequence[Store]) -> Table:
    count = settings.pick(20, 2)

    def candidate(store: Store) -> Candidate:
        client, other = leasehold.connect(store.url), _contender("wait", store.url, "hand-over", 30.0)

        def sample() -> Sample:
            delays = []
            for _ in range(count):
                lease = client.lock("hand-over").acquire(timeout=LONGEST)
                other.tell("wait")
                time.sleep(0.05)  # by then it waits
                released = time.monotonic()
                lease.release()
                delays.append(1000 * (other.answer() - released))
            return Sample(percentile(delays, 0.5), {"p99 ms": percentile(delays, 0.99)})

        def close() -> None:
            other.close()
            client.close()

        return Candidate(store.name, Role.OURS, sample, close=close)

    candidates = [candidate(store) for store in stores]
    title = "Hand-over: from a release to the grant of a waiter in another process, p50"
    return _compared(measure(title, candidates, settings, unit="ms", by="median"))


def _after_crash(settings: Settings, stores: Sequence[Store]) -> Iterator[Table]:
    def kill(store: Store, number: int) -> Sample:
        name = f"crash:{number}"
        holder, waiter = _contender("hold", store.url, name, TTL), _contender("wait", store.url, name, TTL)
        holder.tell("hold")
        holder.answer()
        waiter.tell("wait")
        time.sleep(TTL / 3)  # renewed at least once, and the waiter waits
        killed = time.monotonic()
        holder.kill()
        freed = waiter.answer() - killed
        waiter.close()
        return Sample(freed)

    title = f"Release after a crash: from SIGKILL of the holder to the next grant, ttl {TTL:g} s"
    yield _at_once(title, settings, stores, kill)


def _when_cut_off(settings: Settings, stores: Sequence[Store]) -> Iterator[Table]:
    """The holder's packets vanish: when it knows, when the next one holds, and for how long both believed to hold."""
    from verification.lab.proxy import FaultProxy  # noqa: PLC0415 - servers only where they are needed

    def cut(store: Store, number: int) -> Sample:
        name = f"cut-off:{number}"
        with ExitStack() as stack:
            proxies = [stack.enter_context(FaultProxy(address)) for address in store.addresses]
            url = store.url_at([proxy.address for proxy in proxies])
            holder, waiter = _contender("hold", url, name, TTL), _contender("wait", store.url, name, TTL)
            stack.callback(waiter.close)
            stack.callback(holder.kill)
            holder.tell("hold")
            holder.answer()
            waiter.tell("wait")
            time.sleep(TTL / 3)
            began = time.monotonic()
            for proxy in proxies:
                proxy.black_hole()
            known, granted = holder.answer(), waiter.answer()
            facts = {"next grant after s": granted - began, "known before the next grant by s": granted - known}
            return Sample(known - began, facts)

    title = f"Cut off: until the holder knows of its loss, ttl {TTL:g} s"
    told = _at_once(title, settings, stores, cut, needs_network=True)
    yield told
    windows = [
        Candidate(
            row.name,
            Role.OURS,
            None if row.best is None else _constant(max(0.0, -row.facts["known before the next grant by s"])),
            row.missing,
        )
        for row in told.rows
    ]
    single = type(settings)(settings.directory, 1, settings.quick, None)
    title = "False safety: for how long a holder that was cut off believed in its lease beside the next holder"
    window = measure(title, windows, single, unit="s", by="median")
    window.notes.append("0: the holder knew before the store granted the lock to another")
    yield window


def _constant(value: float) -> Callable[[], Sample]:
    return lambda: Sample(value)


def _at_once(
    title: str,
    settings: Settings,
    stores: Sequence[Store],
    experiment: Callable[[Store, int], Sample],
    *,
    needs_network: bool = False,
) -> Table:
    """An experiment that mostly waits runs on all stores side by side; a few rounds of it."""
    rounds = settings.pick(FAULT_ROUNDS, 1)
    chosen = [store for store in stores if store.addresses or not needs_network]
    taken: dict[str, list[Sample]] = {store.name: [] for store in chosen}
    with ThreadPoolExecutor(max(1, len(chosen))) as pool:
        for number in range(rounds):
            if settings.meter is not None:
                settings.meter.step(title, number, rounds)
            samples = pool.map(lambda store, number=number: experiment(store, number), chosen)
            for store, sample in zip(chosen, samples, strict=True):
                taken[store.name].append(sample)

    def candidate(store: Store) -> Candidate:
        if store.name not in taken:
            return Candidate(store.name, Role.OURS, None, NO_NETWORK)
        return Candidate(store.name, Role.OURS, iter(taken[store.name]).__next__)

    again = type(settings)(settings.directory, rounds, settings.quick, None)
    return _compared(measure(title, [candidate(store) for store in stores], again, unit="s", by="median"))


def _compared(table: Table) -> Table:
    """Stores beside each other have no floor: a ratio to the first of them would say nothing."""
    for row in table.rows:
        row.ratio = None
    return table


def _contender(task: str, url: str, name: str, ttl: float) -> Contender:
    return Contender(task, url, name, ttl, module="benchmarks.store_contender").started()
