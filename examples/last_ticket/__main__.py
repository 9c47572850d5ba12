"""Ten tickets, thirty buyers, three processes of the shop, and more tickets are sold than there are.

    python -m examples.last_ticket                              # on local:, without a server
    python -m examples.last_ticket postgresql://localhost/test  # tickets in this database too, in tables example_*
    python -m examples.last_ticket redis://localhost            # any other store: tickets in a file of SQLite

Each buyer's process reads how many are left, thinks, and writes one less; others read the same number meanwhile.
Two ways hold. Under a **lock** one buyer after the other reads and writes, and the guard refuses one that was
paused for too long. With a **reservation** (`leasehold.sql.Stock`) no lock is needed: a ticket is set aside, paid,
and confirmed. One process is killed while its customer pays: that ticket comes back when its time is over, and
another customer gets it.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import leasehold
from examples.stage import Stage, execute, play, transaction
from leasehold.sql import Stock, guard, is_retryable

if TYPE_CHECKING:
    from collections.abc import Callable

TICKETS, PROCESSES, BUYERS = 10, 3, 10
THINKING = 0.05  # seconds between the read and the write, or between reserve and confirm

stock = Stock("tickets", table="example_ticket", item="name", available="left_over", hold="2s")


# --- three ways to sell one


@dataclass
class Shop:
    """What one process of the shop has open."""

    database: Any
    client: leasehold.Client
    dies: bool = False


def sell_without_care(shop: Shop) -> None:
    """Read, think, write."""
    left = tickets_left(shop.database)
    time.sleep(THINKING)
    if left > 0:
        with transaction(shop.database):
            write_sale(shop.database, left - 1)


def sell_under_a_lock(shop: Shop) -> None:
    """The same, one after the other."""
    with shop.client.lock("tickets").hold(timeout=60) as lease, transaction(shop.database):
        guard(shop.database, lease)  # first in the transaction: a seller who comes too late is refused
        left = tickets_left(shop.database)
        if left > 0:
            time.sleep(THINKING)
            write_sale(shop.database, left - 1)


def sell_with_reservation(shop: Shop) -> None:
    """Reserve, pay, confirm."""
    try:
        with transaction(shop.database):
            reservation = stock.reserve(shop.database, {"concert": 1})
    except leasehold.OutOfStock:
        return
    time.sleep(THINKING)  # the customer pays
    if shop.dies:
        os.kill(os.getpid(), signal.SIGKILL)
    with transaction(shop.database):
        stock.confirm(shop.database, reservation.key)
        execute(shop.database, "INSERT INTO example_sale VALUES ('concert')")


WAYS = {way.__name__: way for way in (sell_without_care, sell_under_a_lock, sell_with_reservation)}


def tickets_left(database: Any) -> int:
    """As the table says at this moment."""
    (left,) = execute(database, "SELECT left_over FROM example_ticket").fetchone()
    return int(left)


def write_sale(database: Any, left: int) -> None:
    """What this process believes to be left, and a ticket that a customer holds in hand."""
    execute(database, "UPDATE example_ticket SET left_over = ?", left)
    execute(database, "INSERT INTO example_sale VALUES ('concert')")


# --- the story


def run_shop(stage: Stage, way: str, *, dies: bool = False) -> None:
    """A process of the shop: one buyer after the other."""
    with closing(stage.database()) as database, stage.connect() as client:
        shop = Shop(database, client, dies)
        for _ in range(BUYERS):
            serve(shop, WAYS[way])


def serve(shop: Shop, sell: Callable[[Shop], None]) -> None:
    """One buyer; from the start if the database asks to run the transaction again."""
    while True:
        try:
            return sell(shop)
        except Exception as error:
            if not is_retryable(error):
                raise


def run_shop_that_dies(stage: Stage) -> None:
    """It is killed while its first customer pays."""
    run_shop(stage, "sell_with_reservation", dies=True)


def open_sale(stage: Stage) -> None:
    """Ten tickets, none sold."""
    with closing(stage.database()) as database, transaction(database):
        execute(database, "DROP TABLE IF EXISTS example_ticket")
        execute(database, "DROP TABLE IF EXISTS example_sale")
        execute(database, "CREATE TABLE example_ticket (name VARCHAR(20) PRIMARY KEY, left_over INTEGER NOT NULL)")
        execute(database, "CREATE TABLE example_sale (name VARCHAR(20))")
        execute(database, "INSERT INTO example_ticket VALUES ('concert', ?)", TICKETS)


def sell_all(stage: Stage, way: str) -> int:
    """Three processes at once; how many tickets were sold."""
    open_sale(stage)
    if way == "sell_with_reservation":
        stage.start(run_shop_that_dies).wait()
        stage.say("a process was killed while its customer paid")
    stage.together(run_shop, [(way,)] * PROCESSES)
    with closing(stage.database()) as database:
        while way == "sell_with_reservation" and any(level.held for level in stock.levels(database)):
            database.rollback()
            time.sleep(0.1)  # until the ticket of the one that was killed comes back
        if way == "sell_with_reservation":
            stage.start(run_shop, way).wait()  # who comes later
        (sold,) = execute(database, "SELECT count(*) FROM example_sale").fetchone()
    return int(sold)


def story(stage: Stage) -> int:
    """Three sales."""
    sold = []
    for label, way in (
        ("without leasehold", sell_without_care),
        ("lock and guard", sell_under_a_lock),
        ("reservations", sell_with_reservation),
    ):
        sold.append(sell_all(stage, way.__name__))
        stage.result(label, sold[-1], TICKETS, f"sold {sold[-1]} of {TICKETS} tickets")
    return stage.verdict(broken=sold[0] > TICKETS, cured=sold[1:] == [TICKETS, TICKETS])


if __name__ == "__main__":
    raise SystemExit(play(story, __doc__))
