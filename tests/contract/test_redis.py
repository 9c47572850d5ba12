"""The contract over a Redis server, in real time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing import contract
from tests.contract.by_turns import by_turns
from tests.contract.sweep import STRIDE

if TYPE_CHECKING:
    from verification.lab.redis import RedisServer


@by_turns(contract.CASES, first=1)
def test_contract(case: contract.Case, driver: type[contract.Driver], redis_server: RedisServer) -> None:
    redis_server.flush()
    contract.check(
        case, contract.UrlHarness(redis_server.url, contract.REQUIRED["redis"], ttl=0.4, stride=STRIDE), driver()
    )
