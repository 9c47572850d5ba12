"""What clients do, one file each: a function that works until it is told to stop, and writes down what it does."""

from __future__ import annotations

import json
import random
import threading
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from verification.lab.history import Pen

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["WORKLOADS", "Client", "Order"]

WORKLOADS = {
    "lock": "acquire and release, some holds longer than the ttl",
    "update": "read, think, write back under the lock, with the guard and without",
    "election": "candidates that read whether they lead",
    "once": "a job per slot, run under a lock and recorded",
    "queue": "jobs of a queue in the database, each done once",
}


@dataclass(frozen=True, slots=True)
class Order:
    """What one client shall do; `url` leads to the store, `data` to the database, or is empty."""

    number: int
    workload: str
    library: str
    store: str
    url: str
    data: str
    ttl: float
    seed: int
    pipe: int
    stop_rate: float = 0.0  # how often a client stops itself as a whole in the middle of an update
    long_rate: float = 0.02  # how often a holder thinks for longer than the ttl, and lives on renewals
    threads: int = 1

    def to_json(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))


class Client:
    """One client: its order, its pen, its chance, and whether it shall stop."""

    def __init__(self, order: Order, number: int) -> None:
        self.order = order
        self.pen = Pen(order.pipe, number)
        self.random = random.Random(order.seed * 1000 + number)
        self.stop = threading.Event()
        self.run: Callable[[], None] = lambda: None
