"""A shop whose refunds must not be lost and not be paid twice, although the bank is often away.

    python examples/refund_worker/shop.py shop.db cancel 17   # an order is cancelled; its refund is enqueued with it
    python examples/refund_worker/shop.py shop.db work        # a worker; start several, end them with Ctrl-C
    leasehold queue ls --url shop.db

The order and the job are written in one transaction: there is no cancelled order without a refund. The worker writes
the refund and completes the job in one transaction: whatever is killed at whatever moment, it is booked once. The bank
is not in that transaction, so it gets the job's number as the key by which it knows a request that comes again.
"""

from __future__ import annotations

import sqlite3
import sys
from typing import TYPE_CHECKING, Any

from leasehold import Backoff
from leasehold.sql import GiveUp, Queue

if TYPE_CHECKING:
    from leasehold.sql import Job

refunds = Queue(
    "refunds",
    visibility="30s",
    max_attempts=10,
    backoff=Backoff(("200ms",), factor=2, longest="1m", jitter="full"),
)


def open_shop(path: str) -> sqlite3.Connection:
    """A connection; the tables are made by the first."""
    shop = sqlite3.connect(path, timeout=30)
    shop.execute("CREATE TABLE IF NOT EXISTS cancelled (number INTEGER PRIMARY KEY)")
    shop.execute("CREATE TABLE IF NOT EXISTS refund (number INTEGER PRIMARY KEY, attempt INTEGER)")
    return shop


def cancel(shop: sqlite3.Connection, number: int) -> None:
    """Cancel an order; asked twice, it is cancelled once."""
    with shop:
        shop.execute("INSERT OR IGNORE INTO cancelled (number) VALUES (?)", [number])
        refunds.enqueue(shop, {"order": number}, key=f"order-{number}")


def refund(tx: Any, job: Job) -> None:
    """The handler: its writes are committed together with the completion of the job."""
    number = job.payload["order"]
    if number < 0:
        raise GiveUp(f"there is no order {number}")
    ask_the_bank(number, key=f"refund-{job.id}", attempt=job.attempt)
    tx.execute("INSERT INTO refund (number, attempt) VALUES (?, ?)", [number, job.attempt])


def ask_the_bank(number: int, *, key: str, attempt: int) -> None:
    """It is away at every first try."""
    if attempt == 1:
        raise ConnectionError(f"the bank did not answer the request {key} for order {number}")


def main(path: str, verb: str, *words: str) -> None:
    """One of the commands above."""
    shop = open_shop(path)
    if verb == "cancel":
        for word in words:
            cancel(shop, int(word))
        return
    worked = refunds.run(
        refund,
        lambda: sqlite3.connect(path, timeout=30),
        in_transaction=True,
        until_idle=verb == "work-until-idle",
    )
    print(f"{worked.completed} refunds, {worked.failed} tries failed, {worked.dead} given up")


if __name__ == "__main__":
    main(*sys.argv[1:])
