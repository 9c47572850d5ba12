"""The contract over a ZooKeeper ensemble of three, in real time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing import contract
from tests.contract.by_turns import by_turns

if TYPE_CHECKING:
    from verification.lab.zookeeper import Ensemble


@by_turns(contract.STORE_CASES, every=3)
def test_contract(case: contract.Case, driver: type[contract.Driver], zookeeper_ensemble: Ensemble) -> None:
    url = zookeeper_ensemble.url("/contract")
    harness = contract.UrlHarness(url, contract.REQUIRED["zookeeper"], ttl=1.0, swept="_backends", stride=7)
    contract.check(case, harness, driver())
