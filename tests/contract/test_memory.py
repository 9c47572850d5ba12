"""The contract over the memory store, on threads, asyncio and the simulated runtime."""

from __future__ import annotations

import pytest

from leasehold.testing import contract


@pytest.mark.parametrize("case", contract.CASES, ids=str)
@pytest.mark.parametrize("driver", contract.DRIVERS, ids=lambda driver: driver.name)
def test_contract_over_memory(case: contract.Case, driver: type[contract.Driver]) -> None:
    contract.check(case, contract.MemoryHarness(), driver())
