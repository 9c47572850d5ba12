"""The pattern suite over a Redis server, in real time: each case on one runtime, by turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing import contract, patterns
from tests.contract.by_turns import by_turns

if TYPE_CHECKING:
    from verification.lab.redis import RedisServer


@by_turns(patterns.CASES, first=0)
def test_patterns(case: contract.Case, driver: type[contract.Driver], redis_server: RedisServer) -> None:
    contract.check(case, contract.UrlHarness(redis_server.url, contract.REQUIRED["redis"], ttl=0.4), driver())
