"""The asyncio faces of `leasehold.sql` pass on every option, also through the `run_sync` of SQLAlchemy."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

import leasehold
from leasehold.errors import ConfigurationError, InFlight, StaleFence
from leasehold.sql import (
    DatabaseRegister,
    IdempotencyKeys,
    Queue,
    Stock,
    fenced_update_async,
    find_job_async,
    guard,
    guard_async,
    list_queues_async,
    lock_free_rows_async,
    lock_rows_async,
    transaction_lock,
    transaction_lock_async,
)
from tests.sql.desks import fresh_schema, sqlalchemy_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from sqlalchemy.ext.asyncio import AsyncConnection

    from verification.lab.postgres import PostgresServer


def on_a_file(path: Path, story: Callable[[Any, AsyncConnection], Awaitable[None]]) -> None:
    """`story` gets the engine, and a transaction of it that is committed at the end."""

    async def main() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{path}/a.db")
        async with engine.begin() as tx:
            await story(engine, tx)
        await engine.dispose()

    asyncio.run(main())


async def fences(tx: AsyncConnection) -> dict[str, int]:
    rows = await tx.execute(text("SELECT resource, exclusive_fence FROM leasehold_guard"))
    return {str(resource): int(fence) for resource, fence in rows}


def test_guard_passes_on_its_options(tmp_path: Path) -> None:
    async def story(_: Any, tx: AsyncConnection) -> None:
        await guard_async(tx, 5, resource="mine")
        assert await fences(tx) == {"mine": 5}
        with pytest.raises(ConfigurationError, match="schema= is for PostgreSQL"):
            await guard_async(tx, 6, resource="mine", schema="x")
        with pytest.raises(ConfigurationError, match="resource="):
            await guard_async(tx, 6)

    on_a_file(tmp_path, story)


def test_register_guards_in_a_transaction_of_its_own(tmp_path: Path) -> None:
    async def main() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/a.db")
        register = DatabaseRegister(engine.begin)
        await register.raise_fence("account", 5)
        with pytest.raises(StaleFence):
            await register.raise_fence("account", 4)
        async with engine.begin() as tx:
            assert await fences(tx) == {"account": 5}
        await engine.dispose()

    asyncio.run(main())


def test_fenced_update_passes_on_its_column(tmp_path: Path) -> None:
    async def story(_: Any, tx: AsyncConnection) -> None:
        await tx.execute(text("CREATE TABLE t (id INTEGER, n INTEGER, seen INTEGER)"))
        await tx.execute(text("INSERT INTO t VALUES (1, 0, 0)"))
        assert await fenced_update_async(tx, 3, "t", {"n": 7}, where={"id": 1}, column="seen") is True
        assert await fenced_update_async(tx, 3, "t", {"n": 7}, where={"id": 2}, column="seen") is False
        assert (await tx.execute(text("SELECT * FROM t"))).all() == [(1, 7, 3)]

    on_a_file(tmp_path, story)


def test_idempotency_keys_are_swept_no_more_than_was_asked_and_belong_to_their_principals(tmp_path: Path) -> None:
    keys = IdempotencyKeys("charges", sweep_every=0)

    async def story(_: Any, tx: AsyncConnection) -> None:
        for number in range(3):
            async with keys.attempt_async(tx, "k", fingerprint="x", principal=f"p{number}") as attempt:
                assert not attempt.replayed
                assert await attempt.complete((number,)) == [number]
        async with keys.attempt_async(tx, "k", fingerprint="x", principal="p1") as again:
            assert (again.replayed, again.result) == (True, [1])
        await tx.execute(text("UPDATE leasehold_idempotency SET expires_at = 1"))
        assert await keys.sweep_async(tx, limit=2) == 2
        assert await keys.sweep_async(tx) == 1
        with pytest.raises(ConfigurationError, match="limit"):
            await keys.sweep_async(tx, limit=0)

    on_a_file(tmp_path, story)


def test_queue_passes_on_its_options(tmp_path: Path) -> None:
    queue = Queue("mails")

    async def story(_: Any, tx: AsyncConnection) -> None:
        await queue.create_tables_async(tx)
        number = await queue.enqueue_async(tx, 1, key="k")
        assert await queue.enqueue_async(tx, 1, key="k") == number
        later = await queue.enqueue_async(tx, 2, delay="1h")
        for payload in (3, 4):
            await queue.enqueue_async(tx, payload)
        jobs = await queue.claim_async(tx, limit=2, visibility="2h")
        assert [job.payload for job in jobs] == [1, 3]
        infos = [await queue.job_async(tx, each) for each in (number, later)]
        assert [info and (info.due_in or 0) > 1_800 for info in infos] == [True, True]
        await queue.extend_async(tx, jobs[0], "9h")
        found = await find_job_async(tx, number)
        assert found is not None
        assert (found.due_in or 0) > 20_000
        assert await queue.fail_async(tx, jobs[0], "no", delay="5m") == 300
        await queue.release_async(tx, jobs[1])
        (counts,) = await list_queues_async(tx)
        assert (counts.ready, counts.delayed, counts.claimed) == (2, 2, 0)
        assert [info.id for info in await queue.jobs_async(tx, state="ready", limit=1)] == [number]
        (third,) = await queue.claim_async(tx)
        await queue.complete_async(tx, third)
        assert await queue.purge_async(tx, third.id) == 1
        await tx.execute(text("UPDATE leasehold_queue SET state = 'dead', due_at = NULL, changed_at = 1"))
        assert await queue.retry_dead_async(tx, later) == 1
        assert await queue.retry_dead_async(tx, limit=1) == 1
        assert await queue.purge_async(tx, dead=True, older_than="1h", limit=5) == 1
        assert await queue.job_async(tx, 99) is None
        assert await find_job_async(tx, 99) is None

    on_a_file(tmp_path, story)


def test_stock_passes_on_its_options(tmp_path: Path) -> None:
    stock = Stock("tickets")

    async def story(_: Any, tx: AsyncConnection) -> None:
        await stock.restock_async(tx, {"a": 9})
        made = [await stock.reserve_async(tx, {"a": 1}, key=key, hold=hold) for key, hold in (("x", "9h"), ("y", None))]
        assert (made[0].key, made[1].key) == ("x", "y")
        assert (made[0].expires_at - made[1].expires_at).total_seconds() > 20_000
        await tx.execute(text("UPDATE leasehold_reservation SET expires_at = 1"))
        with pytest.raises(leasehold.ReservationExpired):
            await stock.confirm_async(tx, "x", late=False)
        assert (await stock.confirm_async(tx, "x")).state == "confirmed"
        assert [each.key for each in await stock.reservations_async(tx, state="held")] == ["y"]
        assert len(await stock.reservations_async(tx, limit=1)) == 1
        assert (await stock.cancel_async(tx, "y")).state == "cancelled"
        for key in ("v", "w"):
            await stock.reserve_async(tx, {"a": 1}, key=key)
        await tx.execute(text("UPDATE leasehold_reservation SET expires_at = 1"))
        assert await stock.sweep_async(tx, limit=1) == 1

    on_a_file(tmp_path, story)


def test_options_that_only_a_server_has_are_passed_on(postgres: PostgresServer) -> None:
    url = fresh_schema(postgres)
    schema = url.rpartition("%3D")[2]

    async def main() -> None:
        engine = create_async_engine(sqlalchemy_url(url))
        with psycopg.connect(url) as beside:
            beside.execute("CREATE TABLE t (id integer PRIMARY KEY)")
            beside.execute("INSERT INTO t VALUES (1), (2), (3)")
            beside.execute("CREATE SCHEMA other")
            beside.commit()
            async with engine.begin() as tx:
                assert await transaction_lock_async(tx, "a", shared=True, namespace="n") is True
                assert await transaction_lock_async(tx, "b") is True
                assert transaction_lock(beside, "a", wait=False) is True, "of another namespace"
                assert transaction_lock(beside, "a", wait=False, shared=True, namespace="n") is True
                assert transaction_lock(beside, "a", wait=False, namespace="n") is False
                assert transaction_lock(beside, "b", wait=False, shared=True) is False
                beside.rollback()
                keys = [{"id": 1}, {"id": 2}]
                assert await lock_rows_async(tx, "t", keys, share=True) == keys
                assert len(await lock_free_rows_async(tx, "t", {"id": 3}, order_by="id", share=True)) == 1
                for number in (1, 3):
                    beside.execute("SELECT id FROM t WHERE id = %s FOR SHARE NOWAIT", (number,))
                beside.rollback()
                beside.execute("SELECT id FROM t WHERE id = 1 FOR SHARE")
                assert await lock_rows_async(tx, "t", keys, skip_locked=True) == [None, {"id": 2}]
                beside.rollback()
            async with engine.begin() as tx:
                await tx.execute(text("SELECT id FROM t"))
                await guard_async(tx, 5, resource="r", schema="other", trust_earlier_reads=True)
            with beside:
                guard(beside, 4, resource="r", schema=schema)  # a table of its own
                rows = beside.execute("SELECT resource, exclusive_fence FROM other.leasehold_guard").fetchall()
                assert rows == [("r", 5)]
        await engine.dispose()

    asyncio.run(main())


def test_attempt_on_an_event_loop_waits_no_longer_than_was_said(tmp_path: Path) -> None:
    keys = IdempotencyKeys("charges", wait=0, retry_after=3)

    async def story(engine: Any, tx: AsyncConnection) -> None:
        async with keys.attempt_async(tx, "k", fingerprint="x"):
            async with engine.connect() as other:
                with pytest.raises(InFlight) as caught:
                    async with keys.attempt_async(other, "k", fingerprint="x"):
                        pass
            assert caught.value.retry_after == 3.0

    on_a_file(tmp_path, story)
