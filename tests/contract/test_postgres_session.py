"""The contract over sessions: grants that end with the connection of their holder."""

from __future__ import annotations

from leasehold.testing import contract
from tests.contract.by_turns import by_turns
from tests.contract.sweep import STRIDE
from verification.lab.postgres import PostgresServer


@by_turns(contract.STORE_CASES)
def test_contract(case: contract.Case, driver: type[contract.Driver], postgres: PostgresServer) -> None:
    url = f"{postgres.url()}?mode=session"
    contract.check(
        case,
        contract.UrlHarness(
            url,
            contract.REQUIRED["postgresql session"],
            ttl=0.5,
            swept="_backends kit/pool kit/one_session",
            stride=STRIDE,
        ),
        driver(),
    )
