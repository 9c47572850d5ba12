"""Sales of tickets by several processes, and what was sold in the end: `python -m benchmarks.ticket_sale`.

It sells 10 tickets to 500 buyers over 5 processes, by each way and on each database, again and again, and counts in the
database: more than 10 sales are oversold; fewer, or tickets left over, undersold. It ends with 1 if a way that should
hold did not.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contender import Contender
from benchmarks.redis_server import RedisServer
from benchmarks.ticket_ways import NAIVE, WAYS, make_engine, make_tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["DATABASES", "Databases", "Outcome", "Sale", "databases", "main"]

DATABASES = ("PostgreSQL", "MariaDB", "SQLite")
PROCESSES, THREADS = 5, 10
HEAD_START = 0.02  # seconds from the last buyer that has a connection to the opening of the sale
_COUNT = itertools.count()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a sale."""

    tickets: int
    sold: int  # rows in the table
    left: int
    retries: int
    refused: int
    seconds: float

    @property
    def is_right(self) -> bool:
        """All of them, and not one more."""
        return self.sold == self.tickets and self.left == 0


class Sale:
    """One way on one database, with its processes, for several sales one after the other."""

    def __init__(self, way: str, url: str, locks: str, processes: int = PROCESSES, threads: int = THREADS) -> None:
        make_tables(url)
        self._engine = make_engine(url)
        module = "benchmarks.ticket_buyer"
        self._processes = [Contender(way, url, locks, threads, module=module) for _ in range(processes)]
        for process in self._processes:
            process.started()

    def sell(self, tickets: int, buyers: int) -> Outcome:
        """Let so many buyers want one of so many tickets."""
        self._stock(tickets, 1)
        start, answers = self._ask([f"sale {share}" for share in _shares(buyers, len(self._processes))])
        took = time.monotonic() - start
        sold, left = self._count()
        retries, refused = (sum(answer[word] for answer in answers) for word in ("retries", "refused"))
        return Outcome(tickets, sold, left, retries, refused, took)

    def load(self, items: int, seconds: float) -> tuple[list[float], int]:
        """Sell as fast as it goes, of so many items that never run out: the time of each purchase, and retries."""
        self._stock(1_000_000, items)
        _, answers = self._ask([f"load {items} {seconds}"] * len(self._processes))
        return [took for answer in answers for took in answer["sold"]], sum(answer["retries"] for answer in answers)

    def rest(self) -> None:
        """Let go of connections: another way has its turn, and a server has only so many."""
        for process in self._processes:
            process.tell("rest")
        for process in self._processes:
            process.started()
        self._engine.dispose()

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.close()
        self._engine.dispose()

    def _ask(self, orders: Sequence[str]) -> tuple[float, list[dict[str, Any]]]:
        """The instant at which all began, and what each process saw."""
        for process, order in zip(self._processes, orders, strict=True):
            process.tell(order)
        for process in self._processes:
            process.started()
        start = time.monotonic() + HEAD_START
        for process in self._processes:
            process.tell(start)
        answers = [process.answer() for process in self._processes]
        for error in itertools.chain.from_iterable(answer["errors"] for answer in answers):
            raise RuntimeError(f"a buyer met an error: {error}")
        return start, answers

    def _stock(self, tickets: int, items: int) -> None:
        with self._engine.begin() as connection:
            for table in ("sale", "ticket", "leasehold_reservation"):
                connection.exec_driver_sql(f"DELETE FROM {table}")
            for item in range(1, items + 1):
                connection.exec_driver_sql(f"INSERT INTO ticket VALUES ({item}, {tickets}, 1)")

    def _count(self) -> tuple[int, int]:
        with self._engine.connect() as connection:
            sold = connection.exec_driver_sql("SELECT count(*) FROM sale").scalar_one()
            left = connection.exec_driver_sql("SELECT sum(available) FROM ticket").scalar_one()
        return int(sold), int(left)


def _shares(count: int, parts: int) -> list[int]:
    return [count // parts + (place < count % parts) for place in range(parts)]


class Databases:
    """Servers that are there as long as they are needed."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self._servers: dict[str, Any] = {}

    def locks(self) -> str:
        """Where leases are."""
        return str(self._server("Redis").url)

    def fresh(self, name: str) -> str:
        """The url of a new database of this kind."""
        number = next(_COUNT)
        if name == "SQLite":
            return f"sqlite:///{self._folder}/sale{number}.db"
        server = self._server(name)
        if name == "MariaDB":
            return str(server.make_database(f"sale{number}"))
        server.make_database(f"sale{number}")
        return str(server.url(f"sale{number}"))

    def _server(self, name: str) -> Any:
        if name not in self._servers:
            if name == "Redis":
                server: Any = RedisServer()
                self._stack.callback(server.close)
            else:
                server = self._stack.enter_context(_make(name))
            self._servers[name] = server
        return self._servers[name]


def _make(name: str) -> Any:
    if name == "MariaDB":
        from verification.lab.mariadb import MariadbServer  # noqa: PLC0415 - needs PyMySQL

        return MariadbServer()
    from verification.lab.postgres import PostgresServer  # noqa: PLC0415 - needs psycopg

    return PostgresServer()


@contextmanager
def databases(folder: Path) -> Iterator[Databases]:
    """Servers of our own, which end with the block."""
    with ExitStack() as stack:
        yield Databases(stack, folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """Sell, count, and say so."""
    parser = argparse.ArgumentParser("python -m benchmarks.ticket_sale", description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--buyers", type=int, default=500)
    parser.add_argument("--tickets", type=int, default=10)
    parser.add_argument("--database", choices=DATABASES, action="append")
    options = parser.parse_args(arguments)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="leasehold-sale-") as folder, databases(Path(folder)) as servers:
        for name, way in itertools.product(options.database or DATABASES, WAYS):
            sale = Sale(way, servers.fresh(name), servers.locks())
            outcomes = [sale.sell(options.tickets, options.buyers) for _ in range(options.runs)]
            sale.close()
            sys.stdout.write(f"{name}, {way}: {_told(outcomes)}\n")
            sys.stdout.flush()
            wrong += way != NAIVE and not all(outcome.is_right for outcome in outcomes)
    return min(wrong, 1)


def _told(outcomes: Sequence[Outcome]) -> str:
    right = sum(outcome.is_right for outcome in outcomes)
    sold = [outcome.sold for outcome in outcomes]
    retries = sum(outcome.retries for outcome in outcomes) / len(outcomes)
    amount = f"sold {min(sold)} to {max(sold)} of {outcomes[0].tickets}"
    return f"right in {right} of {len(outcomes)} runs; {amount}; {retries:.1f} retries a run"


if __name__ == "__main__":
    sys.exit(main())
