"""The public contract runs in the simulator as it does on threads and asyncio."""

from __future__ import annotations

import pytest

from leasehold.testing import contract
from tests.forms import sized
from verification.simulation.driver import SimDriver

CASES = [case for case in contract.CASES if not case.processes]  # other processes live in real time


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_memory_store_keeps_the_contract_in_the_simulator(case: contract.Case) -> None:
    for seed in range(sized(1, 3)):
        contract.check(case, contract.MemoryHarness(), SimDriver(seed))
