"""What clients do, one file each: a function that works until it is told to stop, and writes down what it does."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from dataclasses import asdict, dataclass

from verification.lab.history import Kind, Pen

__all__ = ["WORKLOADS", "Client", "Order"]

STOPPED_BY = 0.02
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
    think: float = 0.02  # seconds between a read and its write, at most, where nothing else is drawn
    in_a_row: int = 4  # updates in one turn, at most

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

    def stop_itself(self, call: int = 0) -> None:
        """Stop the whole process until it is woken up.

        The signal may reach another thread first, and this one would run on for a moment, into a transaction: it waits.
        """
        self.pen.note(Kind.STOPPING, call=call)
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(STOPPED_BY)
