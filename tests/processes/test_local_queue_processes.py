"""The local queue between processes that are stopped at random; the long form is `verification.lab.local_counter`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from verification.lab.local_counter import count

if TYPE_CHECKING:
    from pathlib import Path

    from verification.lab.postgres import PostgresServer
    from verification.lab.redis import RedisServer


@pytest.mark.parametrize("store", ["redis", "postgresql", "local"])
def test_threads_of_processes_that_are_stopped_lose_no_guarded_update(
    store: str, redis_server: RedisServer, postgres: PostgresServer, tmp_path: Path
) -> None:
    urls = {"redis": redis_server.url, "postgresql": postgres.url(), "local": f"sqlite:///{tmp_path / 'locks.db'}"}
    outcome = count(urls[store], tmp_path, processes=4, threads=50, seconds=6.0)
    assert (outcome.lost, outcome.twice) == (0, 0)
    assert outcome.passed_on > 0
    assert outcome.stops > 0
