"""The contract over a Redis Cluster of three masters, in real time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing import contract
from tests.contract.by_turns import by_turns

if TYPE_CHECKING:
    from verification.lab.redis_cluster import RedisCluster


@by_turns(contract.STORE_CASES, every=3)
def test_contract(case: contract.Case, driver: type[contract.Driver], cluster_nodes: RedisCluster) -> None:
    cluster_nodes.flush()
    contract.check(
        case,
        contract.UrlHarness(cluster_nodes.url, contract.REQUIRED["redis"], ttl=0.4, swept="_backends", stride=7),
        driver(),
    )
