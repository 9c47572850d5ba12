"""The contract with the oldest client libraries that pyproject.toml allows, on the oldest server that we promise."""

from __future__ import annotations

import pytest

from tests.versions.contract_program import passes
from tests.versions.oldest_drivers import oldest, oldest_server, python_with
from verification.lab.redis import RedisServer


@pytest.mark.timeout(600)
def test_the_contract_with_the_oldest_redis_and_its_oldest_driver() -> None:
    python = python_with(*oldest("redis"))
    with RedisServer(program=oldest_server(python)) as server:
        passes(python, f"redis://127.0.0.1:{server.port}", "--cases", "store", "--turns", "--ttl", "0.4")
