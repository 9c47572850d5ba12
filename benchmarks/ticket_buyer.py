"""A process with buyers of tickets: `python -m benchmarks.ticket_buyer WAY URL LOCKS THREADS`.

It prints "ready". For each line `sale BUYERS` it lets so many buyers want one ticket of item 1 each, as many at once
as it has threads; for each line `load ITEMS SECONDS` its threads buy for so long, each time one of so many items. It
prints "ready" once every thread has a connection, and waits for a line with the instant at which all begin. It answers
with JSON: how many were sold, how many were told that nothing is left, how often a transaction was run again, and how
long each purchase took. Connections are kept for the next order, until a line `rest`.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from typing import TYPE_CHECKING

from benchmarks.contender import say
from benchmarks.ticket_ways import TicketOffice

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["main"]


class Counter:
    """What the threads of one order saw; lists are appended to by single calls."""

    def __init__(self, office: TicketOffice) -> None:
        self._office = office
        self._retries = office.retries
        self.sold: list[float] = []
        self.refused: list[float] = []
        self.errors: list[str] = []

    def buy(self, item: int) -> None:
        """One buyer."""
        began = time.perf_counter()
        try:
            is_sold = self._office.buy(item)
        except Exception as error:  # noqa: BLE001 - told to who asked
            self.errors.append(f"{type(error).__name__}: {error}")
            return
        (self.sold if is_sold else self.refused).append(time.perf_counter() - began)

    def report(self) -> None:
        """Print it."""
        retries = self._office.retries - self._retries
        say({"sold": self.sold, "refused": len(self.refused), "retries": retries, "errors": self.errors})


class Opening:
    """Everybody has a connection and waits for the same instant, as people do who wait for a sale to open."""

    def __init__(self, office: TicketOffice, threads: int) -> None:
        self._office = office
        self._connected = threading.Barrier(threads + 1)
        self._told = threading.Event()
        self.instant = 0.0

    def wait(self) -> None:
        """For a thread of buyers."""
        with self._office.engine.connect():
            self._connected.wait()
        self._told.wait()
        time.sleep(max(0.0, self.instant - time.monotonic()))

    def announce(self) -> None:
        """Say that everybody is here, and open at the instant that the answer names."""
        self._connected.wait()
        say("ready")
        self.instant = float(sys.stdin.readline())
        self._told.set()


def _sale(counter: Counter, count: int) -> Callable[[], None]:
    left = list(range(count))

    def buyers() -> None:
        while left:
            try:
                left.pop()
            except IndexError:
                return
            counter.buy(1)

    return buyers


def _load(counter: Counter, opening: Opening, items: int, seconds: float) -> Callable[[], None]:
    def buyers() -> None:
        while time.monotonic() < opening.instant + seconds:
            counter.buy(random.randint(1, items))

    return buyers


def _serve(office: TicketOffice, threads: int, order: str, count: int, *seconds: str) -> None:
    counter, opening = Counter(office), Opening(office, threads)
    buyers = _sale(counter, count) if order == "sale" else _load(counter, opening, count, float(seconds[0]))

    def work() -> None:
        opening.wait()
        buyers()

    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    opening.announce()
    for thread in running:
        thread.join()
    counter.report()


def main() -> None:
    """Do as the lines say."""
    way, url, locks, threads = sys.argv[1:]
    office = TicketOffice(way, url, locks)
    with office.engine.connect():  # whatever is loaded with the first use
        say("ready")
    while line := sys.stdin.readline():
        order, *words = line.split()
        if order == "rest":
            office.engine.dispose()
            say("ready")
        else:
            _serve(office, int(threads), order, int(words[0]), *words[1:])
    office.close()


if __name__ == "__main__":
    main()
