"""The contract over one ZooKeeper server, in real time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing import contract
from tests.contract.by_turns import by_turns
from tests.contract.sweep import STRIDE

if TYPE_CHECKING:
    from verification.lab.zookeeper import ZooKeeperServer


@by_turns(contract.STORE_CASES, first=1)
def test_contract(case: contract.Case, driver: type[contract.Driver], zookeeper_server: ZooKeeperServer) -> None:
    url = zookeeper_server.url("/contract")
    contract.check(
        case,
        contract.UrlHarness(url, contract.REQUIRED["zookeeper"], ttl=1.0, swept="_backends", stride=STRIDE),
        driver(),
    )
