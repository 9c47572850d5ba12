"""The contract over a Valkey server, in real time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing import contract
from tests.contract.by_turns import by_turns

if TYPE_CHECKING:
    from verification.lab.redis import RedisServer


@by_turns(contract.STORE_CASES, first=2, every=3)
def test_contract(case: contract.Case, driver: type[contract.Driver], valkey_server: RedisServer) -> None:
    valkey_server.flush()
    url = f"valkey://127.0.0.1:{valkey_server.port}/0"
    contract.check(
        case, contract.UrlHarness(url, contract.REQUIRED["redis"], ttl=0.4, swept="_backends", stride=7), driver()
    )
