"""Idempotency keys over everything that has to be awaited."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from leasehold.errors import ConfigurationError, InFlight, KeyReused
from leasehold.sql import IdempotencyKeys
from tests.sql.async_desks import KINDS, AsyncDesk, async_desk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from leasehold.sql import AsyncTransactionAttempt

KEYS = IdempotencyKeys("charges", wait=0)


@pytest.fixture(params=KINDS)
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncDesk:
    return async_desk(request, tmp_path)


def in_loop(desk: AsyncDesk, story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with desk.begin() as tx:
            await desk.run(tx, "CREATE TABLE effect (n INTEGER)")
        await story()
        await desk.close()

    asyncio.run(main())


async def charge(desk: AsyncDesk, key: str = "k", body: object = "x", result: object = 1) -> AsyncTransactionAttempt:
    async with desk.begin() as tx, KEYS.attempt_async(tx, key, fingerprint=body) as attempt:
        if not attempt.replayed:
            await desk.run(tx, "INSERT INTO effect VALUES (1)")
            assert await attempt.complete(result) == result
    return attempt


async def effects(desk: AsyncDesk) -> int:
    async with desk.begin() as tx:
        ((n,),) = await desk.run(tx, "SELECT count(*) FROM effect")
    return int(n)


def test_work_is_done_once_and_its_result_is_replayed(desk: AsyncDesk) -> None:
    async def story() -> None:
        first = await charge(desk, result={"id": 7})
        again = await charge(desk, result="not this")
        assert (first.replayed, again.replayed) == (False, True)
        assert first.result == again.result == {"id": 7}
        with pytest.raises(KeyReused):
            await charge(desk, body="y")
        assert await effects(desk) == 1

    in_loop(desk, story)


def test_attempt_is_in_flight_until_its_transaction_ends(desk: AsyncDesk) -> None:
    async def story() -> None:
        await charge(desk, "first")
        async with desk.begin() as tx, KEYS.attempt_async(tx, "k", fingerprint="x") as attempt:
            with pytest.raises(InFlight):
                await charge(desk)
            assert (await charge(desk, "first")).replayed
            await attempt.complete(2)
        assert (await charge(desk)).result == 2

    in_loop(desk, story)


def test_work_that_is_rolled_back_leaves_the_key_free(desk: AsyncDesk) -> None:
    async def story() -> None:
        with pytest.raises(KeyError):
            async with desk.begin() as tx, KEYS.attempt_async(tx, "k", fingerprint="x") as attempt:
                await desk.run(tx, "INSERT INTO effect VALUES (1)")
                await attempt.complete(1)
                raise KeyError
        assert not (await charge(desk)).replayed
        assert await effects(desk) == 1

    in_loop(desk, story)


def test_task_that_is_cancelled_in_its_work_leaves_the_key_free(desk: AsyncDesk) -> None:
    async def story() -> None:
        working = asyncio.Event()

        async def work() -> None:
            async with desk.begin() as tx, KEYS.attempt_async(tx, "k", fingerprint="x") as attempt:
                await desk.run(tx, "INSERT INTO effect VALUES (1)")
                await attempt.complete(1)
                working.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await working.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not (await charge(desk)).replayed
        assert await effects(desk) == 1

    in_loop(desk, story)


def test_sweep_removes_what_is_over(desk: AsyncDesk) -> None:
    async def story() -> None:
        await charge(desk)
        async with desk.begin() as tx:
            await desk.run(tx, "UPDATE leasehold_idempotency SET expires_at = completed_at")
        async with desk.begin() as tx:
            assert await KEYS.sweep_async(tx, limit=5) == 1
            assert await KEYS.sweep_async(tx) == 0

    in_loop(desk, story)


def test_the_wrong_face_is_refused(desk: AsyncDesk) -> None:
    """So that a forgotten word does not protect nothing."""

    async def story() -> None:
        async with desk.begin() as tx:
            with pytest.raises(ConfigurationError, match="use attempt_async"), KEYS.attempt(tx, "k", fingerprint="x"):
                pass
            with pytest.raises(ConfigurationError, match="use sweep_async"):
                KEYS.sweep(tx)

    in_loop(desk, story)


def test_async_face_refuses_what_blocks(tmp_path: Path) -> None:
    async def story(tx: Any, message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            async with KEYS.attempt_async(tx, "k", fingerprint="x"):
                pass
        with pytest.raises(ConfigurationError, match=message):
            await KEYS.sweep_async(tx)

    with closing(sqlite3.connect(tmp_path / "data.db")) as connection:
        asyncio.run(story(connection, "not async"))
    asyncio.run(story(object(), r"builtins\.object"))
