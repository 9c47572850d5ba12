"""The contract over rows in PostgreSQL, on asyncio, over a pool of asyncpg that belongs to the program."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from leasehold._urls import find_store
from leasehold.testing import contract
from tests.contract.sweep import STRIDE
from tests.forms import sized

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from leasehold.spi import Store
    from verification.lab.postgres import PostgresServer


class PoolHarness(contract.UrlHarness):
    """The one pool of a case; other processes use the URL, as a program with another driver would."""

    pool: Any = None

    def start(self, driver: contract.Driver) -> None:
        assert isinstance(driver, PoolDriver)
        driver.harness, driver.url = self, self._url

    def open_store(self) -> Store:
        return find_store(self.pool)


class PoolDriver(contract.AsyncioDriver):
    """asyncio, with a pool that is opened on the loop of the case."""

    harness: PoolHarness
    url: str

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        async def main() -> None:
            self.harness.pool = await asyncpg.create_pool(self.url, min_size=1, max_size=8)
            try:
                await coroutine
            finally:
                self.harness.pool.terminate()

        asyncio.run(main())


@pytest.mark.parametrize("case", sized(contract.STORE_CASES[1::2], contract.STORE_CASES), ids=str)
def test_contract(case: contract.Case, postgres: PostgresServer) -> None:
    harness = PoolHarness(
        postgres.url(), contract.REQUIRED["postgresql"], ttl=0.5, swept="_backends", stride=max(STRIDE, 7)
    )
    contract.check(case, harness, PoolDriver())
