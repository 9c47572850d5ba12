"""The contract over three etcd members (3.5), in real time; clients meet under the same keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leasehold.testing import contract
from tests.contract.by_turns import by_turns
from tests.servers.etcd import LATENESS

if TYPE_CHECKING:
    from verification.lab.etcd import EtcdCluster


@pytest.mark.usefixtures("crowded_suffixes")
@by_turns(contract.STORE_CASES, every=3)
def test_contract(case: contract.Case, driver: type[contract.Driver], etcd_cluster: EtcdCluster) -> None:
    harness = contract.UrlHarness(
        etcd_cluster.url, contract.REQUIRED["etcd"], ttl=1.0, swept="_backends", lateness=LATENESS, stride=7
    )
    contract.check(case, harness, driver())
