"""A process with buyers of tickets: `python -m benchmarks.ticket_buyer WAY URL LOCKS THREADS`.

It prints "ready". For each line `sale START BUYERS` it lets so many buyers want one ticket of item 1 each, as many at
once as it has threads; for each line `load START ITEMS END` its threads buy until END, each time one of so many items.
It answers with JSON: how many were sold, how many were told that nothing is left, how often a transaction was run
again, and how long each purchase took.
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


def _at(start: float, office: TicketOffice, buyers: Callable[[], None]) -> Callable[[], None]:
    """Everybody has a connection and waits for the same instant, as people do who wait for a sale to open."""

    def wait_and_buy() -> None:
        with office.engine.connect():
            time.sleep(max(0.0, start - time.monotonic()))
        buyers()

    return wait_and_buy


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


def _load(counter: Counter, items: int, end: float) -> Callable[[], None]:
    def buyers() -> None:
        while time.monotonic() < end:
            counter.buy(random.randint(1, items))

    return buyers


def main() -> None:
    """Do as the lines say."""
    way, url, locks, threads = sys.argv[1:]
    office = TicketOffice(way, url, locks)
    with office.engine.connect():  # whatever is loaded with the first use
        say("ready")
    for line in sys.stdin:
        order, start, count, *end = line.split()
        counter = Counter(office)
        buyers = _sale(counter, int(count)) if order == "sale" else _load(counter, int(count), float(end[0]))
        running = [threading.Thread(target=_at(float(start), office, buyers)) for _ in range(int(threads))]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        office.engine.dispose()  # other ways have their turn now, and a server has only so many connections
        counter.report()
    office.close()


if __name__ == "__main__":
    main()
