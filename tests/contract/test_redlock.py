"""The contract over five Redis servers, in real time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing import contract
from tests.contract.by_turns import by_turns
from tests.contract.sweep import STRIDE

if TYPE_CHECKING:
    from verification.lab.redlock import RedlockNodes


@by_turns(contract.STORE_CASES)
def test_contract(case: contract.Case, driver: type[contract.Driver], redlock_nodes: RedlockNodes) -> None:
    contract.check(
        case,
        contract.UrlHarness(
            redlock_nodes.url(), contract.REQUIRED["redlock"], ttl=1.0, swept="_backends", stride=STRIDE
        ),
        driver(),
    )
