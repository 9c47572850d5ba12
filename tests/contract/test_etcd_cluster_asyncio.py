"""The contract over three etcd members (3.5), in real time, on asyncio; clients meet under the same keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leasehold.testing import contract
from tests.servers.etcd import LATENESS

if TYPE_CHECKING:
    from verification.lab.etcd import EtcdCluster


@pytest.mark.usefixtures("crowded_suffixes")
@pytest.mark.parametrize("case", contract.STORE_CASES, ids=str)
def test_contract(case: contract.Case, etcd_cluster: EtcdCluster) -> None:
    harness = contract.UrlHarness(
        etcd_cluster.url, contract.REQUIRED["etcd"], ttl=1.0, swept="backends", lateness=LATENESS
    )
    contract.check(case, harness, contract.AsyncioDriver())
