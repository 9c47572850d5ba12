"""The simulated server answers as real ones do; the long form is `make conformance`."""

from __future__ import annotations

import pytest

from verification.lab.redis import RedisServer
from verification.simulation.redis import database
from verification.simulation.redis.conformance import compare

OPERATIONS = 2_500


def test_the_simulated_server_answers_as_redis_does(redis_server: RedisServer) -> None:
    report = compare(redis_server, OPERATIONS, seed=1)
    assert report.differences == []
    assert report.compared > 0.9 * OPERATIONS
    assert report.messages > 0


def test_the_simulated_server_answers_as_valkey_does(valkey_server: RedisServer) -> None:
    report = compare(valkey_server, OPERATIONS, seed=2)
    assert report.differences == []
    assert report.compared > 0.9 * OPERATIONS
    assert report.messages > 0


def test_a_server_that_answers_otherwise_is_noticed(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(database._COMMANDS, b"ZCARD", lambda _db, _key: 1)
    assert compare(redis_server, 500, seed=1).differences
