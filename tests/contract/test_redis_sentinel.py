"""The contract over a Redis primary that is found through Sentinels, in real time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing import contract
from tests.contract.by_turns import by_turns

if TYPE_CHECKING:
    from verification.lab.sentinel import SentinelGroup


@by_turns(contract.STORE_CASES, first=1, every=3)
def test_contract(case: contract.Case, driver: type[contract.Driver], sentinel_group: SentinelGroup) -> None:
    sentinel_group.primary.flush()
    contract.check(
        case,
        contract.UrlHarness(sentinel_group.url, contract.REQUIRED["redis"], ttl=0.4, swept="_backends", stride=7),
        driver(),
    )
