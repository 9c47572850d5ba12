"""A small fleet at work on the demonstration's store, so that the dashboard has something to show.

Threads, each with a client of its own: orders that contend, a semaphore, readers, an election, shared partitions, a job
that runs once a minute, payments with idempotency keys, and a name that is paused.
"""

from __future__ import annotations

import random
import threading
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import leasehold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["fleet_at_work"]


@contextmanager
def fleet_at_work(url: str) -> Iterator[None]:
    """Let the fleet work until the end of the block."""
    ended = threading.Event()
    crew = [
        *((f"api-{number}", _orders) for number in (1, 2, 3)),
        *((f"resizer-{number}", _resize) for number in (1, 2, 3, 4)),
        *((f"web-{number}", _read) for number in (1, 2)),
        *((f"scheduler-{number}", _lead) for number in (1, 2, 3)),
        *((f"consumer-{number}", _consume) for number in (1, 2, 3)),
        ("cron-1", _report),
        ("payments-1", _pay),
        ("migration", _migrate),
    ]
    threads = [threading.Thread(target=_work, args=(url, label, work, ended), daemon=True) for label, work in crew]
    with leasehold.connect(url) as client:
        client.pause("import:customers", reason="the supplier sends broken files", by="ana@ops-1")
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(5)


def _work(
    url: str, label: str, work: Callable[[leasehold.Client, threading.Event], object], ended: threading.Event
) -> None:
    with leasehold.connect(url, label=label, ttl=12, slow_wait=None) as client:
        while not ended.wait(0.3):
            with suppress(leasehold.LeaseholdError):  # the store is a file on a busy laptop: the next turn may succeed
                work(client, ended)


def _pause(ended: threading.Event, shortest: float, longest: float) -> None:
    ended.wait(random.uniform(shortest, longest))  # noqa: S311 - it may be guessed


def _orders(client: leasehold.Client, ended: threading.Event) -> None:
    with client.lock("order:1042", reason="charging the card").hold(timeout=20):
        _pause(ended, 3, 7)


def _resize(client: leasehold.Client, ended: threading.Event) -> None:
    with client.semaphore("image-resize", 3, reason="thumbnails of the autumn catalogue").hold(timeout=20):
        _pause(ended, 4, 9)


def _read(client: leasehold.Client, ended: threading.Event) -> None:
    with client.rwlock("catalogue").read.hold(timeout=5):
        _pause(ended, 5, 20)


def _lead(client: leasehold.Client, ended: threading.Event) -> None:
    with client.election("leader:scheduler").lead(timeout=30):
        _pause(ended, 40, 90)


def _consume(client: leasehold.Client, ended: threading.Event) -> None:
    with client.partitions("orders-stream", count=16):
        ended.wait()


def _report(client: leasehold.Client, ended: threading.Event) -> None:
    client.once("nightly-report", every="1m").run(partial(_pause, ended, 2, 5))


def _pay(client: leasehold.Client, ended: threading.Event) -> None:
    with client.idempotency("charges").attempt(f"cart-{random.randrange(10_000)}") as attempt:  # noqa: S311
        _pause(ended, 4, 8)
        attempt.complete({"charged": True})


def _migrate(client: leasehold.Client, ended: threading.Event) -> None:
    with client.lock("schema", reason="adding an index to orders").hold():
        ended.wait()
