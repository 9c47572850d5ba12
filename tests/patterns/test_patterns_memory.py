"""The pattern suite over the memory store, on a clock turned by hand."""

from __future__ import annotations

import pytest

from leasehold.testing import contract, patterns


@pytest.mark.parametrize("driver", contract.DRIVERS)
@pytest.mark.parametrize("case", patterns.CASES, ids=str)
def test_patterns(case: contract.Case, driver: type[contract.Driver]) -> None:
    contract.check(case, contract.MemoryHarness(), driver())
