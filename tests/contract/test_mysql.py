"""The contract over rows in Debian's MariaDB, in real time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing import contract
from tests.contract.by_turns import by_turns
from tests.contract.sweep import STRIDE
from tests.servers.mariadb import fresh_mariadb

if TYPE_CHECKING:
    from verification.lab.mariadb import MariadbServer


@by_turns(contract.STORE_CASES)
def test_contract(case: contract.Case, driver: type[contract.Driver], mariadb: MariadbServer) -> None:
    harness = contract.UrlHarness(
        fresh_mariadb(mariadb), contract.REQUIRED["mysql"], ttl=0.5, swept="_backends kit/pool", stride=STRIDE
    )
    contract.check(case, harness, driver())
