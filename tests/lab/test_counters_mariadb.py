"""Read-modify-write counters under pauses on MariaDB, at every level of isolation; `make counters` is the long form.

The same run with numbers that are checked on writes only must lose something: else it has tested nothing.
"""

from __future__ import annotations

import pytest

from tests.forms import sized
from verification.lab.counters import LEVELS, Outcome, count_lost_updates

UPDATES = 80  # there are five levels
PAUSE_RATE = 0.12


def counted(url: str, level: str, check: str) -> Outcome:
    return count_lost_updates(url, updates=UPDATES, level=level, check=check, pause_rate=PAUSE_RATE)


@pytest.mark.parametrize("level", LEVELS["mariadb"])
def test_guard_loses_no_update_on_mariadb(mariadb_database: str, level: str) -> None:
    """Some of the workers read before the guard, where a transaction sees one moment."""
    outcome = counted(mariadb_database, level, "guard")
    assert (outcome.lost, outcome.counter) == (0, UPDATES)
    assert outcome.total.pauses > 0
    assert outcome.total.stale + outcome.total.retries > 0, "nobody came late: this run has shown nothing"


@pytest.mark.parametrize("level", sized(["repeatable read"], ["read committed", "repeatable read"]))
def test_check_on_writes_only_loses_updates_on_mariadb(mariadb_database: str, level: str) -> None:
    outcome = counted(mariadb_database, level, "write-only")
    assert outcome.total.acknowledged == UPDATES
    assert outcome.lost > 0
