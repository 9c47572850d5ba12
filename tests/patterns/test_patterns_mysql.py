"""The pattern suite over rows in MariaDB, in real time: each case on one runtime, by turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing import contract, patterns
from tests.contract.by_turns import by_turns
from tests.servers.mariadb import fresh_mariadb

if TYPE_CHECKING:
    from verification.lab.mariadb import MariadbServer


@by_turns(patterns.CASES)
def test_patterns(case: contract.Case, driver: type[contract.Driver], mariadb: MariadbServer) -> None:
    harness = contract.UrlHarness(fresh_mariadb(mariadb), contract.REQUIRED["mysql"], ttl=0.5)
    contract.check(case, harness, driver())
