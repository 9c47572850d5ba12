"""What the whole stack costs where the store costs next to nothing: memory, against a bare pair on a local Redis.

The target is at most 20 % of the bare `SET NX` and `DEL` pair. The second table takes our pair apart.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import leasehold
from benchmarks.harness import Candidate, Role, measure, timed
from benchmarks.redis_server import BareClient, RedisServer, why_missing
from leasehold._backends.memory import MemoryStore
from leasehold._core.tenure import Tenure
from leasehold._runtimes.threads import ThreadRuntime
from leasehold._runtimes.threads import run as drive
from leasehold.values import Claim, Grant, Holder, Mode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Settings, Table

__all__ = ["run"]

FREE = "SET NX + DEL, cores as they come"  # over a raw socket, parsed by hiredis
SHARED = "SET NX + DEL, both on one core"
APART = "SET NX + DEL, a core for each"
PAIR = "blocking: acquire, release"
TARGET = 0.20


def run(settings: Settings) -> Iterator[Table]:
    """The stack, then its parts."""
    missing = why_missing()
    server = None if missing else RedisServer()
    try:
        yield _whole(settings, server, missing)
    finally:
        if server is not None:
            server.close()
    yield _parts(settings)


def _whole(settings: Settings, server: RedisServer | None, missing: str) -> Table:
    """Where client and server run decides what the bare pair costs, so it is measured in each arrangement."""
    everywhere = os.sched_getaffinity(0)
    first, *others = sorted(everywhere)
    places = {FREE: (everywhere, everywhere), SHARED: ({first}, {first}), APART: ({first}, set(others))}
    floors = [_floor(settings, server, missing, name, *cores) for name, cores in places.items()]
    table = measure("Whole stack on memory", [*floors, *_blocking(settings), *_async(settings)], settings)
    measured = [row for row in table.rows if row.role is Role.FLOOR and row.best]
    for row in table.rows[len(floors) :]:
        shares = {floor.name: (row.best or 0.0) / (floor.best or 1.0) for floor in measured}
        told = ", ".join(f"{share:.0%} of {name!r}" for name, share in shares.items())
        table.notes.append(f"{row.name}: {told}" if told else f"{row.name}: nothing to compare with, {missing}")
        table.targets += [
            f"{row.name}: at most {TARGET:.0%} of {name!r}, but it is {share:.0%}"
            for name, share in shares.items()
            if share > TARGET
        ]
    return table


def _floor(
    settings: Settings, server: RedisServer | None, missing: str, name: str, client_on: set[int], server_on: set[int]
) -> Candidate:
    if server is None or not server_on:
        return Candidate(name, Role.FLOOR, None, missing or "only one core")
    bare = BareClient(server.port)

    def pairs(count: int) -> None:
        before = os.sched_getaffinity(0)
        server.pin(server_on)
        os.sched_setaffinity(0, client_on)
        try:
            bare.pairs(count)
        finally:
            os.sched_setaffinity(0, before)

    return timed(name, Role.FLOOR, pairs, settings, close=bare.close)


def _blocking(settings: Settings) -> list[Candidate]:
    client = leasehold.connect("memory://")
    lock = client.lock("bench")

    def acquire_release(count: int) -> None:
        for _ in range(count):
            lock.acquire().release()

    def hold(count: int) -> None:
        for _ in range(count):
            with lock.hold():
                pass

    return [
        timed(PAIR, Role.OURS, acquire_release, settings),
        timed("blocking: with hold()", Role.OURS, hold, settings, close=client.close),
    ]


def _async(settings: Settings) -> list[Candidate]:
    runner = asyncio.Runner()
    client = leasehold.connect_async("memory://")
    lock = client.lock("bench")

    async def acquire_release(count: int) -> None:
        for _ in range(count):
            await (await lock.acquire()).release()

    async def hold(count: int) -> None:
        for _ in range(count):
            async with lock.hold():
                pass

    def close() -> None:
        runner.run(client.close())
        runner.close()

    return [
        timed("async: acquire, release", Role.OURS, lambda count: runner.run(acquire_release(count)), settings),
        timed("async: async with hold()", Role.OURS, lambda count: runner.run(hold(count)), settings, close=close),
    ]


async def _nested(depth: int) -> None:
    if depth:
        await _nested(depth - 1)


def _parts(settings: Settings) -> Table:
    """Each part alone, in the way in which the blocking pair uses it; the rest is what no part explains."""
    whole, *_ = _blocking(settings)
    runtime, store = ThreadRuntime(), MemoryStore()
    claim = Claim("leasehold:bench", runtime.owner(), 30.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1, None, None))
    client = leasehold.connect("memory://")
    keeper = client._twin._current().keeper
    grant = Grant(claim, 1, 30.0, None, abandoned=False)
    signal = runtime.signal()

    def in_store(count: int) -> None:
        for _ in range(count):
            answer: Any = store.join(claim, signal)
            store.release(answer)

    def kept(count: int) -> None:
        for _ in range(count):
            tenure = Tenure("bench", grant, runtime.now(), renew=True, max_hold=None)
            keeper.admit(tenure)
            keeper.begin_release(tenure)
            keeper.finish_release(tenure)

    def clock(count: int) -> None:
        now = runtime.now
        for _ in range(count):
            now(), now(), now(), now(), now()

    def coroutines(count: int) -> None:
        for _ in range(count):  # acquire is seven coroutines deep, release four
            drive(_nested(6))
            drive(_nested(3))

    parts = [
        timed("store: join and release", Role.PART, in_store, settings),
        timed("keeper: tenure, admit, release", Role.PART, kept, settings, close=client.close),
        timed("coroutines, driven and empty", Role.PART, coroutines, settings),
        timed("owner: 128 random bits", Role.PART, lambda n: [runtime.owner() for _ in range(n)], settings),
        timed("signal of the place in line", Role.PART, lambda n: [runtime.signal() for _ in range(n)], settings),
        timed("five looks at the clock", Role.PART, clock, settings),
    ]
    table = measure("What the blocking pair consists of", [whole, *parts], settings)
    explained = sum(row.ratio or 0.0 for row in table.rows[1:])
    table.notes.append(f"not explained by these parts (objects and calls of faces and loops): {1 - explained:.0%}")
    dominant = max(table.rows[1:], key=lambda row: row.ratio or 0.0)
    table.notes.append(f"the largest part is {dominant.name!r} with {dominant.ratio or 0.0:.0%}")
    return table
