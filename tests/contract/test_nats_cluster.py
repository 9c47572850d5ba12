"""The contract over three NATS servers with a bucket on each of them, in real time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing import contract
from tests.contract.by_turns import by_turns

if TYPE_CHECKING:
    from verification.lab.nats import NatsCluster


@by_turns(contract.STORE_CASES, every=3)
def test_contract(case: contract.Case, driver: type[contract.Driver], nats_cluster: NatsCluster) -> None:
    harness = contract.UrlHarness(nats_cluster.url, contract.REQUIRED["nats"], ttl=1.0, swept="_backends", stride=7)
    contract.check(case, harness, driver())
