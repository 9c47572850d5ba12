"""The contract over one etcd server (3.4), in real time, on threads; the files of etcd run side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leasehold.testing import contract
from tests.contract.sweep import STRIDE
from tests.servers.etcd import LATENESS

if TYPE_CHECKING:
    from verification.lab.etcd import EtcdServer


@pytest.mark.parametrize("case", contract.STORE_CASES, ids=str)
def test_contract(case: contract.Case, etcd_server: EtcdServer) -> None:
    harness = contract.UrlHarness(
        etcd_server.url, contract.REQUIRED["etcd"], ttl=1.0, swept="_backends", stride=STRIDE, lateness=LATENESS
    )
    contract.check(case, harness, contract.ThreadDriver())
