"""The contract over sessions of MariaDB: grants that end with the connection of their holder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing import contract
from tests.contract.by_turns import by_turns
from tests.contract.sweep import STRIDE
from tests.servers.mariadb import fresh_mariadb

if TYPE_CHECKING:
    from verification.lab.mariadb import MariadbServer

SWEPT = "_backends kit/pool kit/one_session"


@by_turns(contract.STORE_CASES, first=1)
def test_contract(case: contract.Case, driver: type[contract.Driver], mariadb: MariadbServer) -> None:
    url = f"{fresh_mariadb(mariadb)}?mode=session"
    harness = contract.UrlHarness(url, contract.REQUIRED["mysql session"], ttl=0.5, swept=SWEPT, stride=STRIDE)
    contract.check(case, harness, driver())
