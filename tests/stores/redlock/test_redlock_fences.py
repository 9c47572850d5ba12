"""Many grants over nodes that forget, hang and die: no number is given twice, and none goes back.

The short form runs with the tests; `make faults` runs 100,000 grants with 200 faults.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import os
import random
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold.errors import LeaseholdError
from tests.forms import long_form
from tests.stores.redlock.redlock_support import SHORT
from verification.lab.redlock import RedlockNodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.lab.redis import RedisServer

logger = logging.getLogger("redlock soak")

NAMES = ["a", "b", "c", "d"]
FAULTS, GRANTS, PAUSE = (200, 100_000, 2.0) if long_form() else (6, 200, 0.7)


@dataclass
class Given:
    """All grants, by name: when each was asked for, when it was there, and its number; and who holds what now."""

    grants: dict[str, list[tuple[float, float, int]]] = field(default_factory=lambda: {name: [] for name in NAMES})
    holding: dict[str, Any] = field(default_factory=dict)
    overlaps: list[str] = field(default_factory=list)
    stop: bool = False
    mutex: threading.Lock = field(default_factory=threading.Lock)

    @property
    def count(self) -> int:
        return sum(map(len, self.grants.values()))

    def enter(self, name: str, asked: float, lease: Any) -> None:
        """A claim was granted; no earlier holder may believe in its lease any more."""
        with self.mutex:
            self.grants[name].append((asked, time.monotonic(), lease.fence))
            before = self.holding.get(name)
            if before is not None and not before.lost.is_set() and not lease.lost.is_set():
                self.overlaps.append(f"{name}: {before.fence} and {lease.fence} believed at once")
            self.holding[name] = lease

    def leave(self, name: str, lease: Any) -> None:
        with self.mutex:
            if self.holding.get(name) is lease:
                del self.holding[name]


def wrong_order(grants: list[tuple[float, float, int]]) -> list[str]:
    """Numbers that were given twice, and grants that were asked for after another was complete and are not higher."""
    fences = [fence for _, _, fence in grants]
    found = [f"{fence} was given twice" for fence in set(fences) if fences.count(fence) > 1] if _repeats(fences) else []
    complete: list[tuple[float, int]] = []
    highest = 0
    for asked, there, fence in sorted(grants):
        while complete and complete[0][0] < asked:
            highest = max(highest, heapq.heappop(complete)[1])
        if fence <= highest:
            found.append(f"{fence} was given after {highest}")
        heapq.heappush(complete, (there, fence))
    return found


def _repeats(fences: list[int]) -> bool:
    return len(set(fences)) < len(fences)


def work_on_a_thread(url: str, given: Given) -> None:
    with leasehold.connect(url, ttl=SHORT) as client:
        for name in itertools.cycle(NAMES):
            if given.stop:
                return
            asked = time.monotonic()
            with suppress(LeaseholdError):  # no majority for a moment, or the lease was lost: that is what is tested
                lease = client.lock(name).acquire(timeout=5)
                given.enter(name, asked, lease)
                given.leave(name, lease)
                lease.release()


async def work_in_a_task(url: str, given: Given) -> None:
    async with leasehold.connect_async(url, ttl=SHORT) as client:
        for name in itertools.cycle(NAMES[::-1]):
            if given.stop:
                return
            asked = time.monotonic()
            with suppress(LeaseholdError):
                lease = await client.lock(name).acquire(timeout=5)
                given.enter(name, asked, lease)
                await asyncio.sleep(0)
                given.leave(name, lease)
                await lease.release()


def hurt(server: RedisServer, kind: str) -> None:
    """One fault of one node; afterwards it answers, whatever it still knows."""
    if kind == "flush":
        server.flush()
    elif kind == "hang up":
        server.hang_up()
    elif kind == "pause":
        server.pause()
        time.sleep(0.3)
        server.resume()
    else:
        if kind == "old snapshot":
            server.ask("SAVE")
            time.sleep(0.2)
        server.kill()
        if kind == "restart empty":
            (server.folder / "dump.rdb").unlink(missing_ok=True)
        server.start()


@pytest.fixture
def nodes() -> Iterator[RedlockNodes]:
    with RedlockNodes(5, max_ttl=SHORT, answer_timeout=0.2) as started:
        yield started


@pytest.mark.timeout(3600 if long_form() else 120)
def test_no_number_is_given_twice_and_none_goes_back_over_node_faults(nodes: RedlockNodes) -> None:
    seed = int(os.environ.get("LEASEHOLD_SEED", random.randrange(10**6)))
    logger.info("seed %d; say LEASEHOLD_SEED=%d to see it again", seed, seed)
    chance = random.Random(seed)
    given = Given()
    workers = [threading.Thread(target=work_on_a_thread, args=(nodes.url(), given)) for _ in range(2)]
    workers.append(threading.Thread(target=lambda: asyncio.run(work_in_a_task(nodes.url(), given))))
    for worker in workers:
        worker.start()
    try:
        kinds = itertools.cycle(["restart empty", "flush", "pause", "old snapshot", "hang up"])
        for number, kind in zip(range(FAULTS), kinds, strict=False):
            hurt(nodes.servers[(number + chance.randrange(2)) % 5], kind)
            time.sleep(PAUSE * chance.uniform(0.5, 1.5))
            if number % 20 == 0:
                logger.info("%d faults, %d grants", number + 1, given.count)
        end = time.monotonic() + (1800 if long_form() else 60)
        while given.count < GRANTS and time.monotonic() < end:
            time.sleep(0.05)
    finally:
        given.stop = True
        for worker in workers:
            worker.join()
    logger.info("%d grants, %d faults", given.count, FAULTS)
    assert given.count >= GRANTS
    assert given.overlaps == []
    assert {name: wrong_order(grants) for name, grants in given.grants.items()} == {name: [] for name in NAMES}


def test_the_check_above_can_fail() -> None:
    assert wrong_order([(0, 1, 5), (2, 3, 6), (2, 4, 7)]) == []
    assert wrong_order([(0, 1, 5), (0.5, 3, 4)]) == [], "they overlap: no order is promised"
    assert wrong_order([(0, 1, 5), (2, 3, 4)]) == ["4 was given after 5"]
    assert wrong_order([(0, 1, 5), (0.5, 3, 5)]) == ["5 was given twice"]
