"""Four pods of a new release start together, and each of them migrates the database.

    python -m examples.migration                                # on local:, without a server
    python -m examples.migration postgresql://localhost/test    # data in this database too, in tables example_*
    python -m examples.migration zk://localhost                 # any other store: the data in a file of SQLite

The new release keeps prices in cents. Every pod looks at the version of the schema, finds the old one, and
multiplies by a hundred. Under a lock one pod migrates; the others wait until it is done, look again, and find
nothing to do. The guard keeps out a pod that was paused in the middle of its migration for so long that another
took over.

For a migration that is a command of its own, in the start script of every pod:

    leasehold run migrate --wait 5m -- ./manage.py migrate
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

from examples.stage import Stage, execute, play, times, transaction
from leasehold.sql import guard

PODS = 4
EUROS, CENTS = 19, 1900


def needs_migration(database: Any) -> bool:
    """Whether the schema is the old one."""
    (version,) = execute(database, "SELECT version FROM example_schema").fetchone()
    return int(version) < 1


def migrate(database: Any) -> None:
    """Euros become cents; a big table takes a while."""
    time.sleep(0.05)
    execute(database, "UPDATE example_price SET amount = amount * 100")
    execute(database, "UPDATE example_schema SET version = 1")


def start_pod(stage: Stage) -> None:
    """It looks, and migrates."""
    with closing(stage.database()) as database:
        with transaction(database):
            needed = needs_migration(database)
        time.sleep(0.1)  # loads its migrations
        if needed:
            with transaction(database):
                migrate(database)


def start_pod_under_lock(stage: Stage) -> None:
    """It waits for its turn, and only then looks."""
    with (
        closing(stage.database()) as database,
        stage.connect(label="pod") as client,
        client.lock("migrate").hold(timeout="5m") as lease,
        transaction(database),
    ):
        guard(database, lease)  # first in the transaction, before the first read
        if needs_migration(database):
            migrate(database)
            stage.say("one pod migrates")
        else:
            stage.say("another finds it done")


def story(stage: Stage) -> int:
    """Four pods, started at the same moment."""
    prices = []
    for label, way in (("without leasehold", start_pod), ("lock and guard", start_pod_under_lock)):
        with closing(stage.database()) as database, transaction(database):
            execute(database, "DROP TABLE IF EXISTS example_price")
            execute(database, "DROP TABLE IF EXISTS example_schema")
            execute(database, "CREATE TABLE example_price (amount BIGINT)")
            execute(database, "CREATE TABLE example_schema (version INTEGER)")
            execute(database, "INSERT INTO example_price VALUES (?)", EUROS)
            execute(database, "INSERT INTO example_schema VALUES (0)")
        stage.together(way, [()] * PODS)
        with closing(stage.database()) as database:
            (price,) = execute(database, "SELECT amount FROM example_price").fetchone()
        prices.append(int(price))
        runs = (len(str(price)) - len(str(EUROS))) // 2
        stage.result(label, runs, 1, f"migrated {times(runs)}: {EUROS} euros became {price:,} cents")
    return stage.verdict(broken=prices[0] > CENTS, cured=prices[1] == CENTS)


if __name__ == "__main__":
    raise SystemExit(play(story, __doc__))
