"""The contract over rows, through a PgBouncer that pools transactions."""

from __future__ import annotations

import pytest

from leasehold.testing import contract
from verification.lab.pgbouncer import PgBouncer


@pytest.mark.parametrize("driver", contract.DRIVERS)
@pytest.mark.parametrize("case", contract.CASES, ids=str)
def test_contract(case: contract.Case, driver: type[contract.Driver], pgbouncer: PgBouncer) -> None:
    contract.check(case, contract.UrlHarness(pgbouncer.url(), contract.REQUIRED["postgresql"], ttl=0.4), driver())
