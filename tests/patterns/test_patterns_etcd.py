"""The pattern suite over one etcd server, in real time: each case on one runtime, by turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing import contract, patterns
from tests.contract.by_turns import by_turns
from tests.servers.etcd import LATENESS

if TYPE_CHECKING:
    from verification.lab.etcd import EtcdServer


@by_turns(patterns.CASES, first=0)
def test_patterns(case: contract.Case, driver: type[contract.Driver], etcd_server: EtcdServer) -> None:
    harness = contract.UrlHarness(etcd_server.url, contract.REQUIRED["etcd"], ttl=1.0, lateness=LATENESS)
    contract.check(case, harness, driver())
