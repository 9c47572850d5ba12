"""The contract over the SQLite store, in real time, on a file of its own for each case."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leasehold.testing import contract
from tests.contract.sweep import STRIDE

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("driver", contract.DRIVERS)
@pytest.mark.parametrize("case", contract.CASES, ids=str)
def test_contract(case: contract.Case, driver: type[contract.Driver], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    contract.check(case, contract.UrlHarness(url, contract.REQUIRED["sqlite"], ttl=0.4, stride=STRIDE), driver())
