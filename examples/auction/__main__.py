"""Auctions are settled while bids still come in: winners pay twice, and higher bids are passed over.

    python -m examples.auction                              # on local:, without a server
    python -m examples.auction postgresql://localhost/test  # bids in this database too, in tables example_*
    python -m examples.auction redis://localhost            # any other store: the bids in a file of SQLite

At the end of an auction somebody reads the highest bid, charges that bidder, and writes the price down. Two
processes do so, because one of them may fail; and two others accept bids for every auction that looks open.

A read/write lock for each auction is what it takes: bids share it (`.read`), a settlement has it alone (`.write`).
So a settlement begins when no bid is half-way, and no bid is accepted during it or after it. The guard keeps out a
settlement that was paused for so long that another took over.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from examples.stage import Stage, execute, play, transaction
from leasehold.sql import guard

if TYPE_CHECKING:
    import leasehold

AUCTIONS = range(1, 9)
SETTLERS, BIDDERS, BIDS = 2, 2, 3


def bid(database: Any, auction: int) -> None:
    """Bid a little more than the highest, if the auction is still open."""
    with transaction(database):
        is_open, highest = look(database, auction)
    time.sleep(0.005)  # checks the bidder's credit
    if is_open:
        with transaction(database):
            execute(database, "INSERT INTO example_bid VALUES (?, ?)", auction, highest + 10)


def settle(stage: Stage, database: Any, auction: int) -> None:
    """Charge the highest bidder, if nobody did so before."""
    is_open, highest = look(database, auction)
    if is_open:
        time.sleep(0.05)  # the bank needs a moment
        stage.ledger("charges").write(f"auction {auction}: {highest}")
        execute(database, "UPDATE example_auction SET price = ? WHERE id = ?", highest, auction)


def look(database: Any, auction: int) -> tuple[bool, int]:
    """Whether an auction is open, and the highest bid."""
    (price,) = execute(database, "SELECT price FROM example_auction WHERE id = ?", auction).fetchone()
    (highest,) = execute(database, "SELECT max(amount) FROM example_bid WHERE auction = ?", auction).fetchone()
    return price is None, int(highest)


# --- two houses


def run_house(stage: Stage, part: str) -> None:
    """One process, which looks before it acts."""
    with closing(stage.database()) as database:
        for auction in AUCTIONS:
            if part == "settler":
                settle(stage, database, auction)
                database.commit()
            else:
                for _ in range(BIDS):
                    bid(database, auction)


def run_house_with_locks(stage: Stage, part: str) -> None:
    """The same with a read/write lock for each auction."""
    with stage.connect(label=part) as client, closing(stage.database()) as database:
        for auction in AUCTIONS:
            lock = client.rwlock(f"auction:{auction}")
            if part == "settler":
                settle_alone(stage, database, lock, auction)
            else:
                for _ in range(BIDS):
                    with lock.read.hold(timeout=60):
                        bid(database, auction)


def settle_alone(stage: Stage, database: Any, lock: leasehold.RWLock, auction: int) -> None:
    """While no bid is under way."""
    with lock.write.hold(timeout=60) as lease, transaction(database):
        guard(database, lease)  # first in the transaction, before the first read
        settle(stage, database, auction)


# --- the story


def open_auctions(stage: Stage) -> None:
    """All at 100."""
    with closing(stage.database()) as database, transaction(database):
        execute(database, "DROP TABLE IF EXISTS example_auction")
        execute(database, "DROP TABLE IF EXISTS example_bid")
        execute(database, "CREATE TABLE example_auction (id INTEGER PRIMARY KEY, price INTEGER)")
        execute(database, "CREATE TABLE example_bid (auction INTEGER, amount INTEGER)")
        for auction in AUCTIONS:
            execute(database, "INSERT INTO example_auction (id) VALUES (?)", auction)
            execute(database, "INSERT INTO example_bid VALUES (?, 100)", auction)


def count_damage(stage: Stage) -> tuple[int, int]:
    """How often winners were charged, and how many auctions went for less than the highest bid."""
    with closing(stage.database()) as database:
        (too_low,) = execute(
            database,
            "SELECT count(*) FROM example_auction"
            " WHERE price < (SELECT max(amount) FROM example_bid WHERE auction = example_auction.id)",
        ).fetchone()
    return len(stage.ledger("charges").take()), int(too_low)


def story(stage: Stage) -> int:
    """The same evening twice."""
    ends = []
    for label, way in (("without leasehold", run_house), ("read/write lock", run_house_with_locks)):
        open_auctions(stage)
        stage.together(way, [("settler",)] * SETTLERS + [("bidder",)] * BIDDERS)
        charged, too_low = count_damage(stage)
        ends.append((charged, too_low))
        text = f"{charged} charges for {len(AUCTIONS)} auctions, {too_low} sold below the highest bid"
        stage.result(label, charged, len(AUCTIONS), text, good=ends[-1] == (len(AUCTIONS), 0))
    intact = (len(AUCTIONS), 0)
    return stage.verdict(broken=ends[0] != intact, cured=ends[1] == intact)


if __name__ == "__main__":
    raise SystemExit(play(story, __doc__))
