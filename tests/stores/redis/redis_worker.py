"""The other process of the fault tests: `python redis_worker.py TASK ARGUMENTS…`; prints a line per event."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import leasehold

if TYPE_CHECKING:
    from collections.abc import Callable

__all__: list[str] = []


def say(*words: object) -> None:
    """One line, at once."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def wait_for_a_word() -> str:
    """The next line of the parent's."""
    return sys.stdin.readline().strip()


def hold(url: str, name: str, ttl: str) -> None:
    """Wait for a lock, say what came of it the moment it is there, hold it, and obey: check, lost, release."""
    client = leasehold.connect(url)
    say("asking")
    lease = client.lock(name, ttl=float(ttl)).acquire(timeout=100)
    say("held", lease.fence, lease.lost.is_set(), lease.remaining() > 0)
    while word := wait_for_a_word():
        if word == "check":
            loss = lease.loss
            say("ok" if loss is None else f"lost {loss.reason.name}")
        elif word == "lost":
            say("told" if lease.lost.wait(60) else "never", lease.loss.reason.name if lease.loss else "")
        elif word == "release":
            say("released", lease.release())


async def hold_async(url: str, name: str, ttl: str) -> None:
    """The same on asyncio; words are read on another thread, so that the loop goes on."""
    async with leasehold.connect_async(url) as client:
        say("asking")
        lease = await client.lock(name, ttl=float(ttl)).acquire(timeout=100)
        say("held", lease.fence, lease.lost.is_set(), lease.remaining() > 0)
        while word := await asyncio.to_thread(wait_for_a_word):
            if word == "check":
                loss = lease.loss
                say("ok" if loss is None else f"lost {loss.reason.name}")
            elif word == "lost":
                say("told" if await lease.lost.wait(60) else "never", lease.loss.reason.name if lease.loss else "")
            elif word == "release":
                say("released", await lease.release())


def run_hold_async(url: str, name: str, ttl: str) -> None:
    """See above."""
    asyncio.run(hold_async(url, name, ttl))


def count(url: str, path: str, times: str) -> None:
    """Add one to a number in a plain file, many times, each under the lock."""
    client = leasehold.connect(url)
    lock, counter = client.lock("counter", ttl=10), Path(path)
    say("ready")
    wait_for_a_word()
    for _ in range(int(times)):
        with lock.hold(timeout=100) as lease:
            counter.write_text(str(int(counter.read_text()) + 1))
            say("fence", lease.fence)
    client.close()


# --- a fleet of several libraries on one key


class Fleet:
    """Takes one lock many times with one library, and looks whether it is alone: a file that must not exist."""

    def __init__(self, folder: str, times: str) -> None:
        self._inside, self._counter, self._left = Path(folder) / "inside", Path(folder) / "counter", int(times)

    def work(self, take: Callable[[], Any], give: Callable[[Any], None]) -> None:
        """Take and give until it was done so many times."""
        say("ready")
        wait_for_a_word()
        while self._left:
            held = take()
            if not held:
                continue
            self._left -= 1
            os.close(os.open(self._inside, os.O_CREAT | os.O_EXCL))
            self._counter.write_text(str(int(self._counter.read_text()) + 1))
            self._inside.unlink()
            give(held)
        say("done")


def fleet_leasehold(url: str, name: str, folder: str, times: str) -> None:
    """Ours."""
    client = leasehold.connect(url)
    lock = client.lock(name, ttl=30)
    Fleet(folder, times).work(lambda: lock.acquire(timeout=100), lambda lease: lease.release())
    client.close()


def fleet_redis_py(url: str, key: str, folder: str, times: str) -> None:
    """The lock of redis-py."""
    redis = importlib.import_module("redis")
    with redis.Redis.from_url(url) as connection:
        lock = connection.lock(key, timeout=30, sleep=0.002)

        def take() -> Any:
            return lock if lock.acquire(blocking_timeout=100) else None

        Fleet(folder, times).work(take, lambda held: held.release())


def fleet_redlock_py(url: str, key: str, folder: str, times: str) -> None:
    """The lock of redlock-py."""
    manager = importlib.import_module("redlock").Redlock([url], retry_count=50_000, retry_delay=0.002)
    Fleet(folder, times).work(lambda: manager.lock(key, 30_000), manager.unlock)
    for server in manager.servers:
        server.close()


def endure(url: str, seconds: str) -> None:
    """Hold ten locks for a while, and say how many were lost and how often one was had in between."""
    client = leasehold.connect(url)
    leases = [client.lock(f"kept {os.getpid()} {number}", ttl=6).acquire(timeout=60) for number in range(10)]
    end, rounds = time.monotonic() + float(seconds), 0
    while time.monotonic() < end:
        with client.lock("busy", ttl=10).hold(timeout=60):
            rounds += 1
    lost = [lease.loss.reason.name for lease in leases if lease.loss is not None]
    for lease in leases:
        lease.release()
    say("lost", len(lost), rounds, *lost)
    client.close()


if __name__ == "__main__":
    tasks: dict[str, Callable[..., None]] = {
        "hold": hold,
        "hold-asyncio": run_hold_async,
        "count": count,
        "endure": endure,
        "leasehold": fleet_leasehold,
        "redis-py": fleet_redis_py,
        "redlock-py": fleet_redlock_py,
    }
    tasks[sys.argv[1]](*sys.argv[2:])
