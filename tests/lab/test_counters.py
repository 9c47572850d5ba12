"""Read-modify-write counters under pauses, at every level of isolation; `make counters` is the long form.

The same run with numbers that are checked on writes only must lose something: else it has tested nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sql.desks import fresh_schema
from verification.lab.counters import LEVELS, count_lost_updates

if TYPE_CHECKING:
    from verification.lab.counters import Outcome
    from verification.lab.postgres import PostgresServer

UPDATES = 150
PAUSE_RATE = 0.06
FEWER, MORE_PAUSES = 80, 0.12  # there are five levels there


def on_mariadb(url: str, level: str, check: str) -> Outcome:
    return count_lost_updates(url, updates=FEWER, level=level, check=check, pause_rate=MORE_PAUSES)


@pytest.mark.parametrize("level", LEVELS["postgresql"])
def test_guard_loses_no_update(postgres: PostgresServer, level: str) -> None:
    url = fresh_schema(postgres)
    outcome = count_lost_updates(url, updates=UPDATES, level=level, check="guard", pause_rate=PAUSE_RATE)
    assert (outcome.lost, outcome.counter) == (0, UPDATES)
    assert outcome.total.pauses > 0
    # A late writer is refused by the guard, or, where transactions see a snapshot, before that by the database.
    late = outcome.total.stale + (0 if level == "read committed" else outcome.total.retries)
    assert late > 0, "nobody came late: this run has shown nothing"


@pytest.mark.parametrize("level", LEVELS["postgresql"])
def test_guard_over_asyncpg_loses_no_update(postgres: PostgresServer, level: str) -> None:
    url = fresh_schema(postgres)
    outcome = count_lost_updates(
        url, updates=UPDATES, level=level, check="guard", pause_rate=PAUSE_RATE, driver="asyncpg"
    )
    assert (outcome.lost, outcome.counter) == (0, UPDATES)
    assert outcome.total.pauses > 0


def test_check_on_writes_only_over_asyncpg_loses_updates(postgres: PostgresServer) -> None:
    url = fresh_schema(postgres)
    outcome = count_lost_updates(
        url, updates=UPDATES, level="read committed", check="write-only", pause_rate=PAUSE_RATE, driver="asyncpg"
    )
    assert outcome.total.acknowledged == UPDATES
    assert outcome.lost > 0


@pytest.mark.parametrize("level", LEVELS["postgresql"])
def test_check_on_writes_only_loses_updates(postgres: PostgresServer, level: str) -> None:
    url = fresh_schema(postgres)
    outcome = count_lost_updates(url, updates=UPDATES, level=level, check="write-only", pause_rate=PAUSE_RATE)
    assert outcome.total.acknowledged == UPDATES
    assert outcome.lost > 0


@pytest.mark.parametrize("level", LEVELS["mariadb"])
def test_guard_loses_no_update_on_mariadb(mariadb_database: str, level: str) -> None:
    """Some of the workers read before the guard, where a transaction sees one moment."""
    outcome = on_mariadb(mariadb_database, level, "guard")
    assert (outcome.lost, outcome.counter) == (0, FEWER)
    assert outcome.total.pauses > 0
    assert outcome.total.stale + outcome.total.retries > 0, "nobody came late: this run has shown nothing"


@pytest.mark.parametrize("level", ["read committed", "repeatable read"])
def test_check_on_writes_only_loses_updates_on_mariadb(mariadb_database: str, level: str) -> None:
    outcome = on_mariadb(mariadb_database, level, "write-only")
    assert outcome.total.acknowledged == FEWER
    assert outcome.lost > 0
