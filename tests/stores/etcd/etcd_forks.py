"""A program that uses etcd, forks, and uses it in the child: `python etcd_forks.py HOW URL`.

It says how the child fared, one line each: `done`, or the name of an error and its sentence.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import leasehold

if TYPE_CHECKING:
    from collections.abc import Callable


def say(text: str) -> None:
    """One line."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def attempt(action: Callable[[], object]) -> None:
    """Do it, and say how that went."""
    try:
        action()
        say("done")
    except leasehold.LeaseholdError as error:
        say(f"{type(error).__name__}: {error}")


def forked(action: Callable[[], object]) -> None:
    """Do it in a child, by os.fork."""
    child = os.fork()
    if child == 0:
        attempt(action)
        os._exit(0)
    os.waitpid(child, 0)


def use(client: leasehold.Client) -> None:
    """A pair."""
    client.lock("pair").acquire(timeout=20).release()


def refused(client: leasehold.Client) -> None:
    """The parent's lock is held for the child, too."""
    if client.lock("x").try_acquire() is not None:
        say("two holders")


def while_held(url: str) -> None:
    """The parent holds a lock, and another thread of it waits."""
    client = leasehold.connect(url, ttl=20, namespace="forks")
    held = client.lock("x").acquire()
    waiter = threading.Thread(target=lambda: client.lock("x").acquire(timeout=60).release())
    waiter.start()
    while not getattr(client.inspect("x"), "waiting", ()):
        pass
    forked(lambda: use(client))
    forked(lambda: refused(client))
    held.check()
    held.release()
    waiter.join(60)
    attempt(lambda: use(client))


def while_busy(url: str) -> None:
    """Other threads of the parent are in the middle of calls."""
    client = leasehold.connect(url, ttl=20, namespace="forks")
    over = threading.Event()

    def keep_busy(name: str) -> None:
        while not over.is_set():
            client.lock(name).acquire(timeout=20).release()

    threads = [threading.Thread(target=keep_busy, args=(f"busy {number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(6):
        forked(lambda: use(client))
    over.set()
    for thread in threads:
        thread.join(60)
    attempt(lambda: use(client))


def by_multiprocessing(url: str) -> None:
    """A pool of inherited clients."""
    client = leasehold.connect(url, ttl=20, namespace="forks")
    use(client)
    processes = [
        multiprocessing.get_context("fork").Process(target=attempt, args=(lambda: use(client),)) for _ in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    attempt(lambda: use(client))


def after_asyncio(url: str) -> None:
    """The parent uses asyncio; gRPC cannot be repaired then."""

    async def main() -> None:
        async with leasehold.connect_async(url, ttl=20, namespace="forks") as client:
            lease = await client.lock("x").acquire()
            blocking: Any = leasehold.connect(url, ttl=20, namespace="forks")
            forked(lambda: use(blocking))
            await lease.release()
            say("done")

    asyncio.run(main())


if __name__ == "__main__":
    {each.__name__: each for each in (while_held, while_busy, by_multiprocessing, after_asyncio)}[sys.argv[1]](
        sys.argv[2]
    )
