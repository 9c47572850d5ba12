"""The pattern suite over one ZooKeeper server, in real time: each case on one runtime, by turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing import contract, patterns
from tests.contract.by_turns import by_turns

if TYPE_CHECKING:
    from verification.lab.zookeeper import ZooKeeperServer


@by_turns(patterns.CASES, first=1)
def test_patterns(case: contract.Case, driver: type[contract.Driver], zookeeper_server: ZooKeeperServer) -> None:
    url = zookeeper_server.url("/patterns")
    contract.check(case, contract.UrlHarness(url, contract.REQUIRED["zookeeper"], ttl=1.0), driver())
