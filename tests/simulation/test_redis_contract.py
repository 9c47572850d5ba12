"""The public contract over the simulated Redis server, with both ways to use connections."""

from __future__ import annotations

import pytest

from leasehold.testing import contract
from verification.simulation.driver import SimDriver
from verification.simulation.redis.harness import CASES, SimRedisHarness


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_redis_store_keeps_the_contract_in_the_simulator(case: contract.Case) -> None:
    for seed, shared in enumerate((True, False)):
        contract.check(case, SimRedisHarness(shared=shared), SimDriver(seed))
