"""Rows that nobody needs are cleaned away in every mode, by whoever uses the store; what fails there hurts nobody."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import sqlalchemy
from psycopg_pool import AsyncConnectionPool, ConnectionPool

import leasehold
from tests.stores.support import eventually

if TYPE_CHECKING:
    from verification.lab.postgres import PostgresServer

OLD = "INSERT INTO leasehold.lock (key, fence) SELECT convert_to(n::text, 'UTF8'), n FROM generate_series(1, 30) n"


def rows_are_cleaned(database: str, client: leasehold.Client) -> None:
    """What is old goes while a client is in use."""
    client.lock("job").acquire().release()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(OLD)

        def are_gone() -> bool:
            client.lock("job").acquire().release()
            return connection.execute("SELECT count(*) FROM leasehold.lock WHERE fence <= 30").fetchone() == (0,)

        eventually(are_gone, "old rows are never cleaned away", 20)


def test_old_rows_are_cleaned_away_in_every_mode(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold._backends.postgres.maintenance.CLEAN_EVERY", 0.3)
    for mode in ("rows", "session"):
        with leasehold.connect(f"{database}?mode={mode}", ttl=20) as client:
            rows_are_cleaned(database, client)
    pool: Any
    with ConnectionPool(database, min_size=1, max_size=1, open=True) as pool:
        with leasehold.connect(pool, ttl=20) as client:
            rows_are_cleaned(database, client)
        with pool.connection(timeout=5) as connection:
            assert connection.info.transaction_status.name == "IDLE"
    engine: Any = sqlalchemy.create_engine(database.replace("postgresql:", "postgresql+psycopg:"))
    with leasehold.connect(engine, ttl=20) as client:
        rows_are_cleaned(database, client)
    assert engine.pool.checkedout() == 0
    engine.dispose()


def test_old_rows_are_cleaned_away_over_a_borrowed_async_pool(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold._backends.postgres.maintenance.CLEAN_EVERY", 0.3)

    async def use_for_a_while() -> None:
        pool: Any
        async with AsyncConnectionPool(database, min_size=1, max_size=1, open=False) as pool:
            async with leasehold.connect_async(pool, ttl=20) as client:
                await (await client.lock("job").acquire()).release()
                async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
                    await connection.execute(OLD)
                    end = time.monotonic() + 20
                    old = "SELECT count(*) FROM leasehold.lock WHERE fence <= 30"
                    while await (await connection.execute(old)).fetchone() != (0,):
                        assert time.monotonic() < end, "old rows are never cleaned away"
                        await (await client.lock("job").acquire()).release()

    asyncio.run(use_for_a_while())


@pytest.mark.parametrize("mode", ["rows", "session"])
def test_maintenance_that_fails_is_left_for_later_and_ends_nothing(
    postgres: PostgresServer,
    database: str,
    mode: str,
    *,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its connection is killed under it. The housekeeper goes on: it still lets go of what is idle."""
    monkeypatch.setattr("leasehold._backends.postgres.maintenance.CLEAN_EVERY", 0.0)
    caplog.set_level(logging.DEBUG, "leasehold.postgres")
    name = database.rpartition("/")[2]
    ours = f"FROM pg_stat_activity WHERE datname = '{name}' AND application_name = 'leasehold'"
    with leasehold.connect(f"{database}?mode={mode}", ttl=20) as client:
        client.lock("job").acquire().release()
        backend: Any = client._twin._opened and client._twin._opened.backend
        source = backend._executor.source
        clean = source.maintenance.run

        async def fail(line: Any) -> None:
            postgres.run(f"SELECT pg_terminate_backend(pid) {ours}")
            await clean(line)

        source.maintenance.run = fail
        eventually(lambda: "maintenance failed" in caplog.text, "it does not fail", 20)
        source.maintenance.run = clean
        client.lock("job").acquire(timeout=20).release()
        eventually(lambda: postgres.run(f"SELECT pid {ours}") == [], "an idle client holds a connection", 20)
        rows_are_cleaned(database, client)
