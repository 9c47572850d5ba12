"""The pattern suite over one NATS server, in real time: each case on one runtime, by turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing import contract, patterns
from tests.contract.by_turns import by_turns

if TYPE_CHECKING:
    from verification.lab.nats import NatsServer


@by_turns(patterns.CASES, first=0)
def test_patterns(case: contract.Case, driver: type[contract.Driver], nats_server: NatsServer) -> None:
    contract.check(case, contract.UrlHarness(nats_server.url, contract.REQUIRED["nats"], ttl=1.0), driver())
