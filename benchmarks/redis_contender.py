"""A process that measures on behalf of a Redis scenario: `python -m benchmarks.redis_contender TASK KIND PORT …`.

It prints "ready", waits for a line, does its task, and prints what it saw as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import leasehold
from benchmarks.contender import contend, say
from benchmarks.redis_locks import MOST_CONNECTIONS, OURS, PATIENCE, TTL, Connections, make
from leasehold import events

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

__all__ = ["NAME"]

NAME = "bench"


def contend_in_threads(kind: str, port: int, threads: int, held: float) -> None:
    """Threads that take and give one name between the two instants of the order; the answer has a part for each."""
    connections = Connections(port)
    locks = [make(kind, connections, NAME) for _ in range(threads)]
    for lock in locks:
        lock.take()  # whatever is set up with the first use
        lock.give()
    say("ready")
    start, end = map(float, sys.stdin.readline().split())
    answers: list[Any] = [None] * threads

    def work(number: int) -> None:
        time.sleep(max(0.0, start - time.monotonic()))
        answers[number] = contend(locks[number], held, end)

    _in_threads(work, threads)
    say(answers)
    connections.close()


def wait_in_threads(kind: str, port: int, waiters: int) -> None:
    """Threads that all wait for one name, and give it back at once when they have it."""
    connections = Connections(port)
    locks = [make(kind, connections, NAME) for _ in range(waiters)]
    threading.stack_size(256 * 1024)

    def work(number: int) -> None:
        locks[number].take()
        locks[number].give()

    say("ready")
    sys.stdin.readline()
    threads = _started(work, waiters)
    sys.stdin.readline()
    say(threading.active_count() - 1)
    for thread in threads:
        thread.join()
    say("over")
    connections.close()


async def wait_in_tasks(kind: str, port: int, waiters: int) -> None:
    """The same with tasks."""
    loop = asyncio.get_running_loop()
    say("ready")
    await loop.run_in_executor(None, sys.stdin.readline)
    pair, close = _async_pair(kind, port)
    tasks = [asyncio.create_task(pair()) for _ in range(waiters)]
    await loop.run_in_executor(None, sys.stdin.readline)
    say(threading.active_count() - 2)  # this one, and the one that reads the order
    await asyncio.gather(*tasks)
    say("over")
    await close()


def _async_pair(
    kind: str, port: int
) -> tuple[Callable[[], Coroutine[Any, Any, None]], Callable[[], Awaitable[object]]]:
    if kind == OURS:
        client = leasehold.connect_async(f"redis://127.0.0.1:{port}", ttl=TTL)
        lock = client.lock(NAME)

        async def ours() -> None:
            await (await lock.acquire(timeout=10 * PATIENCE)).release()

        return ours, client.close
    redis: Any = import_module("redis.asyncio").Redis(port=port, max_connections=MOST_CONNECTIONS)

    async def theirs() -> None:
        async with redis.lock(NAME, timeout=TTL):
            pass

    return theirs, redis.aclose


def hold_in_threads(port: int, leases: int, seconds: float) -> None:
    """Hold many leases for a while with a blocking client, and say what that cost."""
    with leasehold.connect(f"redis://127.0.0.1:{port}", ttl=TTL) as client:
        client.lock("first").acquire().release()  # whatever is set up with the first use
        before = resident()
        held = [client.lock(f"held-{number}").acquire() for number in range(leases)]
        bytes_each = (resident() - before) / leases
        say("ready")
        sys.stdin.readline()
        watch = _Watch()
        time.sleep(seconds)
        say([*watch.end(seconds), bytes_each])
        for lease in held:
            lease.release()


async def hold_in_tasks(port: int, leases: int, seconds: float) -> None:
    """The same with an asyncio client."""
    async with leasehold.connect_async(f"redis://127.0.0.1:{port}", ttl=TTL) as client:
        await (await client.lock("first").acquire()).release()
        before = resident()
        held = []
        for first in range(0, leases, 100):
            locks = [client.lock(f"held-{number}") for number in range(first, min(leases, first + 100))]
            held += await asyncio.gather(*(lock.acquire() for lock in locks))
        bytes_each = (resident() - before) / leases
        say("ready")
        sys.stdin.readline()
        watch = _Watch()
        await asyncio.sleep(seconds)
        say([*watch.end(seconds), bytes_each])
        await asyncio.gather(*(lease.release() for lease in held))


class _Watch(logging.Handler):
    """What holding costs: share of a core in percent, threads, renewals that failed, leases lost.

    It hears what is logged as a warning. A listener for events would be told of every renewal, which costs something.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        logging.getLogger("leasehold").addHandler(self)
        self._counts: dict[type, int] = {}
        self._cpu = _cpu()

    def emit(self, record: logging.LogRecord) -> None:
        """Count it."""
        for event in record.args or ():
            self._counts[type(event)] = self._counts.get(type(event), 0) + 1

    def end(self, seconds: float) -> list[float]:
        share = 100 * (_cpu() - self._cpu) / seconds
        counts = [self._counts.get(kind, 0) for kind in (events.RenewalFailed, events.Lost)]
        return [share, threading.active_count() - 1, *counts]


def resident() -> int:
    """Bytes of memory that this process has now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _started(work: Callable[[int], None], count: int) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads


def _in_threads(work: Callable[[int], None], count: int) -> None:
    for thread in _started(work, count):
        thread.join()


def main() -> None:
    """Do the task of the command line."""
    task, kind, port, *more = sys.argv[1:]
    numbers = [float(text) for text in more]
    if task == "contend":
        contend_in_threads(kind, int(port), int(numbers[0]), numbers[1])
    elif task == "wait in threads":
        wait_in_threads(kind, int(port), int(numbers[0]))
    elif task == "wait in tasks":
        asyncio.run(wait_in_tasks(kind, int(port), int(numbers[0])))
    elif task == "hold in threads":
        hold_in_threads(int(port), int(numbers[0]), numbers[1])
    else:
        asyncio.run(hold_in_tasks(int(port), int(numbers[0]), numbers[1]))


if __name__ == "__main__":
    main()
