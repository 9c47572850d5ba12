"""Reservations over every kind of connection that has to be awaited."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiomysql
import asyncmy
import pytest
import sqlalchemy

from leasehold import ConfigurationError, OutOfStock, ReservationRefused
from leasehold.sql import Stock, StockLevel, reservations_schema
from tests.servers.mariadb import fresh_mariadb
from tests.sql.async_desks import KINDS, async_desk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from verification.lab.mariadb import MariadbServer

STOCK = Stock("tickets", hold="10m")


async def go_shopping(begin: Any) -> None:
    """All that a stock can do, once."""
    async with begin() as tx:
        await STOCK.restock_async(tx, {"a": 3, "b": 2})
    async with begin() as tx:
        made = await STOCK.reserve_async(tx, {"b": 1, "a": 2}, key="k")
        assert await STOCK.reserve_async(tx, {"a": 2, "b": 1}, key="k") == made
    async with begin() as tx:
        with pytest.raises(OutOfStock):
            await STOCK.reserve_async(tx, {"a": 1, "b": 2})
        assert await STOCK.available_async(tx, "a") == 1
        assert await STOCK.levels_async(tx) == [StockLevel("a", 1, 2), StockLevel("b", 1, 1)]
        assert await STOCK.find_async(tx, "k") == made
    async with begin() as tx:
        assert (await STOCK.confirm_async(tx, "k")).state == "confirmed"
    async with begin() as tx:
        with pytest.raises(ReservationRefused):
            await STOCK.cancel_async(tx, "k")
        assert await STOCK.sweep_async(tx) == 0
        assert [each.key for each in await STOCK.reservations_async(tx)] == ["k"]
        with pytest.raises(ConfigurationError, match="reserve_async"):
            STOCK.reserve(tx, {"a": 1})


@pytest.mark.parametrize("desk", KINDS, indirect=True)
def test_reservations_are_awaited(desk: Any) -> None:
    async def run() -> None:
        if desk.url.startswith(("mariadb:", "mysql:")):
            async with desk.begin() as tx:
                for statement in reservations_schema("mysql").split(";\n")[:-1]:
                    await desk.run(tx, statement)
        await go_shopping(desk.begin)
        await desk.close()

    asyncio.run(run())


@pytest.fixture
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return async_desk(request, tmp_path)


@pytest.mark.parametrize("driver", [aiomysql, asyncmy])
def test_reservations_are_awaited_on_mariadb(mariadb: MariadbServer, driver: Any) -> None:
    parts = sqlalchemy.make_url(fresh_mariadb(mariadb))
    login = {"host": parts.host, "port": parts.port, "user": parts.username}

    @asynccontextmanager
    async def begin() -> AsyncIterator[Any]:
        connection = await driver.connect(**login, db=parts.database)
        try:
            await connection.begin()
            yield connection
            await connection.commit()
        finally:
            connection.close()

    async def run() -> None:
        async with begin() as connection, connection.cursor() as cursor:
            for statement in reservations_schema("mysql").split(";\n")[:-1]:
                await cursor.execute(statement)
        await go_shopping(begin)

    asyncio.run(run())
