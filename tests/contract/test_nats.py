"""The contract over one NATS server with JetStream, in real time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing import contract
from tests.contract.by_turns import by_turns
from tests.contract.sweep import STRIDE

if TYPE_CHECKING:
    from verification.lab.nats import NatsServer


@by_turns(contract.STORE_CASES, first=1)
def test_contract(case: contract.Case, driver: type[contract.Driver], nats_server: NatsServer) -> None:
    harness = contract.UrlHarness(nats_server.url, contract.REQUIRED["nats"], ttl=1.0, swept="_backends", stride=STRIDE)
    contract.check(case, harness, driver())
