"""The pattern suite over rows in PostgreSQL, in real time: each case on one runtime, by turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing import contract, patterns
from tests.contract.by_turns import by_turns

if TYPE_CHECKING:
    from verification.lab.postgres import PostgresServer


@by_turns(patterns.CASES, first=1)
def test_patterns(case: contract.Case, driver: type[contract.Driver], postgres: PostgresServer) -> None:
    contract.check(case, contract.UrlHarness(postgres.url(), contract.REQUIRED["postgresql"], ttl=0.5), driver())
