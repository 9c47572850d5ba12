"""A process with many readers of one cached value: `python -m benchmarks.cache_reader NAME URL READERS`.

It reads once and prints "ready", waits for a line with the instants of start and end, reads until then, and prints as
JSON when each build began and ended, and of each read how long it took and whether it waited. A build gives the instant
at which it ended: who gets a value that it had asked for while it was in the making, and did not build it, has waited.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time

from benchmarks.caches import BUILD, make_async, make_blocking
from benchmarks.contender import say

__all__ = ["main"]

PAUSE = 0.2  # between two reads of one reader, on the average


class Notes:
    """What was seen; lists are appended to by single calls, so threads may share them."""

    def __init__(self) -> None:
        self.builds: list[tuple[float, float]] = []
        self.reads: list[tuple[float, bool]] = []

    def built(self, began: float) -> float:
        """A build is over."""
        ended = time.monotonic()
        self.builds.append((began, ended))
        return ended

    def report(self, start: float) -> None:
        """Print it, without what was before the start."""
        say({"builds": [(began, ended) for began, ended in self.builds if began >= start], "reads": self.reads})


def _pause() -> float:
    return PAUSE * 2 * random.random()


async def _on_tasks(name: str, url: str, readers: int) -> None:
    notes, building = Notes(), set[int]()

    async def build() -> float:
        began = time.monotonic()
        building.add(id(asyncio.current_task()))
        await asyncio.sleep(BUILD)
        return notes.built(began)

    get = make_async(name, url, build)

    async def read(start: float, end: float) -> None:
        await asyncio.sleep(max(0.0, start - time.monotonic()) + _pause())
        while (asked := time.monotonic()) < end:
            building.discard(id(asyncio.current_task()))
            ended = await get()
            waited = asked < ended - BUILD / 2 and id(asyncio.current_task()) not in building
            notes.reads.append((time.monotonic() - asked, waited))
            await asyncio.sleep(_pause())

    await get()
    say("ready")
    start, end = map(float, (await asyncio.to_thread(sys.stdin.readline)).split())
    await asyncio.gather(*(read(start, end) for _ in range(readers)))
    notes.report(start)


def _on_threads(name: str, url: str, readers: int) -> bool:
    notes, local = Notes(), threading.local()

    def build() -> float:
        began = time.monotonic()
        local.built = True
        time.sleep(BUILD)
        return notes.built(began)

    get = make_blocking(name, url, build)
    if get is None:
        return False

    def read(start: float, end: float) -> None:
        time.sleep(max(0.0, start - time.monotonic()) + _pause())
        while (asked := time.monotonic()) < end:
            local.built = False
            ended = get()
            notes.reads.append((time.monotonic() - asked, asked < ended - BUILD / 2 and not local.built))
            time.sleep(_pause())

    get()
    say("ready")
    start, end = map(float, sys.stdin.readline().split())
    threads = [threading.Thread(target=read, args=(start, end)) for _ in range(readers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    notes.report(start)
    return True


def main() -> None:
    """Read as the words say."""
    name, url, readers = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if not _on_threads(name, url, readers):
        asyncio.run(_on_tasks(name, url, readers))


if __name__ == "__main__":
    main()
