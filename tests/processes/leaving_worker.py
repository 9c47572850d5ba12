"""A process that holds or wants locks until it is told to end; started by `test_leaving.py`.

Words: face (blocking, async), story, URL, namespace, number of locks, seconds for leaving. Each line on stdout is one
step, with the fences of what it holds.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from typing import Any

import leasehold

TTL = 30


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def stay() -> None:
    """In short naps: a signal that comes in the moment before a sleep begins is handled when the sleep ends."""
    while True:
        time.sleep(0.05)


def hang(_: object) -> None:
    say("leaving")
    time.sleep(600)


def blocking(story: str, url: str, namespace: str, number: int, limit: float) -> None:
    client = leasehold.connect(url, namespace=namespace, ttl=TTL, label="worker")
    leave = client.release_on_signals(timeout=limit)
    if story == "wait":
        client.lock("n0").acquire(None, on_wait=lambda *_: say("waiting"))
    elif story == "churn":  # the signal most often finds it inside the library
        kept = client.lock("kept").acquire()
        say("ready", kept.fence)
        while True:
            with client.lock("n0").hold():
                pass
    elif story == "stubborn":
        with client.lock("n0").hold(on_lost=hang) as lease:
            say("ready", lease.fence)
            stay()
    elif story == "own handler":
        leave()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
        client.release_on_signals(timeout=limit)
    elif story == "two clients":
        other = leasehold.connect(url, namespace=namespace, ttl=TTL)
        other.release_on_signals(timeout=limit)
        held = other.lock("other").acquire()
        say("also", held.fence)
    elif story == "undone":
        leave()
    elif story == "goes on":
        leave()
        signal.signal(signal.SIGTERM, lambda *_: say("told"))
        client.release_on_signals(timeout=limit)
    leases = [client.lock(f"n{index}").acquire() for index in range(number)]
    if story == "goes on":
        threading.Thread(target=_wait_in_vain, args=(client,), daemon=True).start()
    try:
        say("ready", *(lease.fence for lease in leases))
        while True:
            time.sleep(0.05)
            if story == "goes on" and leases[0].lost.is_set():
                lost = leases[0].loss
                assert lost is not None
                say("lost", lost.reason.value.replace(" ", "-"))
                stay()
    except KeyboardInterrupt:
        say("interrupted", *(lease.lost.is_set() for lease in leases[:1]))
        raise SystemExit(5) from None


def _wait_in_vain(client: leasehold.Client) -> None:
    try:
        client.lock("n0").acquire(None)
    except leasehold.ClientClosed:
        say("closed")


async def on_a_loop(story: str, url: str, namespace: str, number: int, limit: float) -> None:
    client = leasehold.connect_async(url, namespace=namespace, ttl=TTL, label="worker")
    client.release_on_signals(timeout=limit)
    if story == "wait":
        await client.lock("n0").acquire(None, on_wait=lambda *_: say("waiting"))
    elif story == "churn":
        kept = await client.lock("kept").acquire()
        say("ready", kept.fence)
        while True:
            async with client.lock("n0").hold():
                await asyncio.sleep(0)
    elif story == "block":
        try:
            async with client.lock("n0").hold() as lease:
                say("ready", lease.fence)
                await asyncio.sleep(600)
        except leasehold.LeaseLost as lost:
            assert lost.reason is not None
            say("lost", lost.reason.value.replace(" ", "-"))
            await asyncio.sleep(600)
    leases: list[Any] = [await client.lock(f"n{index}").acquire() for index in range(number)]
    say("ready", *(lease.fence for lease in leases))
    await asyncio.sleep(600)


def main() -> None:
    face, story, url, namespace, number, limit = sys.argv[1:]
    if face == "async":
        asyncio.run(on_a_loop(story, url, namespace, int(number), float(limit)))
    else:
        blocking(story, url, namespace, int(number), float(limit))


if __name__ == "__main__":
    main()
