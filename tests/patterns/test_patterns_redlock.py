"""The pattern suite over five Redis servers, in real time: each case on one runtime, by turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing import contract, patterns
from tests.contract.by_turns import by_turns

if TYPE_CHECKING:
    from verification.lab.redlock import RedlockNodes


@by_turns(patterns.CASES, first=1)
def test_patterns(case: contract.Case, driver: type[contract.Driver], redlock_nodes: RedlockNodes) -> None:
    contract.check(case, contract.UrlHarness(redlock_nodes.url(), contract.REQUIRED["redlock"], ttl=1.0), driver())
