"""Ten tickets and a hundred buyers over five processes: oversold without care, and exactly ten with reservations.

    python examples/last_ticket/last_ticket.py                                  # SQLite, needs no server
    python examples/last_ticket/last_ticket.py postgresql://localhost/test      # tables last_ticket_* there

Without care each buyer reads how many are left, thinks, and writes one less. With `leasehold.sql.Stock` each reserves
one, pays, and confirms it. One process is killed (SIGKILL) while its buyer pays: that ticket comes back when the hold
is over, and somebody else gets it.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from leasehold import OutOfStock
from leasehold.sql import Stock, is_retryable

if TYPE_CHECKING:
    from collections.abc import Iterator

TICKETS, PROCESSES, BUYERS = 10, 5, 20
THINKING = 0.01  # seconds between the read and the write, or between reserve and confirm

stock = Stock("tickets", table="last_ticket_stock", item="name", available="left_over", hold="2s")


def open_database(url: str) -> Any:
    """A connection of psycopg or of sqlite3; what follows is the same for both."""
    if url.startswith("postgresql:"):
        import psycopg  # noqa: PLC0415 - not needed for SQLite

        return psycopg.connect(url)
    return sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)


@contextmanager
def transaction(database: Any) -> Iterator[Any]:
    """Commit at the end, or roll back."""
    try:
        yield database
    except BaseException:
        database.rollback()
        raise
    database.commit()


# --- two ways to buy one


def buy_without_care(database: Any) -> bool:
    """Read, think, write."""
    with transaction(database):
        (left,) = database.execute("SELECT left_over FROM last_ticket_stock").fetchone()
    time.sleep(THINKING)
    if left < 1:
        return False
    with transaction(database):
        database.execute(f"UPDATE last_ticket_stock SET left_over = {left - 1}")
        database.execute("INSERT INTO last_ticket_sale VALUES ('sold')")
    return True


def buy_with_reservation(database: Any) -> bool:
    """Reserve, pay, confirm."""
    try:
        with transaction(database):
            reservation = stock.reserve(database, {"concert": 1})
    except OutOfStock:
        return False
    time.sleep(THINKING)  # the customer pays
    if os.environ.get("DIES"):
        os.kill(os.getpid(), signal.SIGKILL)
    with transaction(database):
        stock.confirm(database, reservation.key)
        database.execute("INSERT INTO last_ticket_sale VALUES ('sold')")
    return True


WAYS = {"naive": buy_without_care, "reservation": buy_with_reservation}


def sell(url: str, way: str) -> None:
    """A process of the shop: one buyer after the other."""
    with closing(open_database(url)) as database:
        for _ in range(BUYERS):
            buy(database, way)


def buy(database: Any, way: str) -> None:
    """One buyer, who comes again when the database asks to run the transaction again."""
    while True:
        try:
            WAYS[way](database)
            break
        except Exception as error:
            if not is_retryable(error):
                raise


# --- the story


def tell(url: str, way: str) -> int:
    """Sell all, and count."""
    with closing(open_database(url)) as database:
        with transaction(database):
            database.execute("DELETE FROM last_ticket_sale")
            database.execute(f"UPDATE last_ticket_stock SET left_over = {TICKETS}")
        if way == "reservation":
            open_doors([start(url, way, DIES="1")])
            print("  a process was killed while its customer paid")
        open_doors([start(url, way) for _ in range(PROCESSES)])
        if way == "reservation":
            wait_for_the_hold(database)
            sell(url, way)  # who comes later
        with transaction(database):
            (sold,) = database.execute("SELECT count(*) FROM last_ticket_sale").fetchone()
    return int(sold)


def wait_for_the_hold(database: Any) -> None:
    """Until the one that was killed holds its ticket no longer."""
    while True:
        with transaction(database):
            if all(level.held == 0 for level in stock.levels(database)):
                return
        time.sleep(0.1)


def start(url: str, way: str, **environment: str) -> Any:
    """Another process of the shop, which waits for the doors to be opened."""
    command, pipe = [sys.executable, __file__, url, way], subprocess.PIPE
    return subprocess.Popen(command, env={**os.environ, **environment}, stdin=pipe, stdout=pipe)


def open_doors(processes: list[Any]) -> None:
    """All at once, when all are there; until each has come to its end."""
    for process in processes:
        process.stdout.readline()
    for process in processes:
        process.stdin.write(b"open\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()


def main(url: str) -> int:
    """Both ways; 1 if reservations did not hold."""
    with closing(open_database(url)) as database, transaction(database):
        database.execute("DROP TABLE IF EXISTS last_ticket_stock")
        database.execute("DROP TABLE IF EXISTS last_ticket_sale")
        database.execute(
            "CREATE TABLE last_ticket_stock (name VARCHAR(20) PRIMARY KEY,"
            " left_over INTEGER NOT NULL CHECK (left_over >= 0))"
        )
        database.execute(f"INSERT INTO last_ticket_stock VALUES ('concert', {TICKETS})")
        database.execute("CREATE TABLE last_ticket_sale (what VARCHAR(20))")
    print(f"{TICKETS} tickets, {PROCESSES} processes with {BUYERS} buyers each")
    print("\nWITHOUT CARE", flush=True)
    sold = tell(url, "naive")
    print(f"  sold {sold} of {TICKETS}{': OVERSOLD' if sold > TICKETS else ''}")
    print("\nWITH RESERVATIONS", flush=True)
    sold = tell(url, "reservation")
    print(f"  sold {sold} of {TICKETS}{', as it must be' if sold == TICKETS else ': WRONG'}")
    return int(sold != TICKETS)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print("ready", flush=True)
        sys.stdin.readline()
        sell(*sys.argv[1:])
    elif len(sys.argv) == 2:
        sys.exit(main(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            sys.exit(main(f"sqlite:///{folder}/shop.db"))
