"""Read-modify-write counters under pauses, at every level of isolation; `make counters` is the long form.

The same run with numbers that are checked on writes only must lose something: else it has tested nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.forms import sized
from tests.sql.desks import fresh_schema
from verification.lab.counters import LEVELS, count_lost_updates

if TYPE_CHECKING:
    from verification.lab.postgres import PostgresServer

UPDATES = 150
PAUSE_RATE = 0.06
EVERY_LEVEL = LEVELS["postgresql"]


@pytest.mark.parametrize("level", EVERY_LEVEL)
def test_guard_loses_no_update(postgres: PostgresServer, level: str) -> None:
    url = fresh_schema(postgres)
    outcome = count_lost_updates(url, updates=UPDATES, level=level, check="guard", pause_rate=PAUSE_RATE)
    assert (outcome.lost, outcome.counter) == (0, UPDATES)
    assert outcome.total.pauses > 0
    # A late writer is refused by the guard, or, where transactions see a snapshot, before that by the database.
    late = outcome.total.stale + (0 if level == "read committed" else outcome.total.retries)
    assert late > 0, "nobody came late: this run has shown nothing"


@pytest.mark.parametrize("level", sized(["read committed"], EVERY_LEVEL))
def test_guard_over_asyncpg_loses_no_update(postgres: PostgresServer, level: str) -> None:
    url = fresh_schema(postgres)
    outcome = count_lost_updates(
        url, updates=UPDATES, level=level, check="guard", pause_rate=PAUSE_RATE, driver="asyncpg"
    )
    assert (outcome.lost, outcome.counter) == (0, UPDATES)
    assert outcome.total.pauses > 0


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
@pytest.mark.parametrize("level", sized(["read committed"], EVERY_LEVEL))
def test_check_on_writes_only_loses_updates(postgres: PostgresServer, level: str, driver: str) -> None:
    url = fresh_schema(postgres)
    outcome = count_lost_updates(
        url, updates=UPDATES, level=level, check="write-only", pause_rate=PAUSE_RATE, driver=driver
    )
    assert outcome.total.acknowledged == UPDATES
    assert outcome.lost > 0
