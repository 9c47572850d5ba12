"""The contract over rows in Debian's PostgreSQL, in real time, reached directly."""

from __future__ import annotations

from leasehold.testing import contract
from tests.contract.by_turns import by_turns
from tests.contract.sweep import STRIDE
from verification.lab.postgres import PostgresServer


@by_turns(contract.STORE_CASES)
def test_contract(case: contract.Case, driver: type[contract.Driver], postgres: PostgresServer) -> None:
    contract.check(
        case,
        contract.UrlHarness(
            postgres.url(), contract.REQUIRED["postgresql"], ttl=0.5, swept="_backends kit/pool", stride=STRIDE
        ),
        driver(),
    )
