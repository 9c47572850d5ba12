"""The queue for a connection: releases go first, nothing is lost, and order is kept."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._runtimes.asyncio import AsyncioRuntime
from leasehold._urls import find_store
from leasehold.kit.pool_queue import STUCK, PoolQueue
from leasehold.values import Claim, Holder, Mode

if TYPE_CHECKING:
    from collections.abc import Coroutine


def play(history: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(history, 60))


def claim_of(runtime: AsyncioRuntime, name: str) -> Claim:
    return Claim(f"ns:{name}", runtime.owner(), 60.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))


@pytest.mark.parametrize("mode", ["rows", "session"])
def test_releases_and_withdrawals_go_ahead_of_sixty_acquires_that_wait_for_a_connection(
    database: str, mode: str
) -> None:
    async def history() -> None:
        runtime = AsyncioRuntime()
        backend: Any = find_store(f"{database}?connections=1&mode={mode}").open_backend(runtime)
        released = await backend.try_acquire(claim_of(runtime, "released"))
        renewed = await backend.try_acquire(claim_of(runtime, "renewed"))
        source, order = backend._executor.source, []

        async def note(name: str, call: Coroutine[Any, Any, Any]) -> None:
            await call
            order.append(name)

        connection = await source.take()
        calls = [
            asyncio.create_task(note("acquire", backend.try_acquire(claim_of(runtime, str(number)))))
            for number in range(60)
        ]
        while len(source._queue.rest) < 60:
            await asyncio.sleep(0.01)
        calls.append(asyncio.create_task(note("release", backend.release(released))))
        await asyncio.sleep(0.05)
        calls.append(asyncio.create_task(note("withdraw", backend.withdraw(claim_of(runtime, "late")))))
        await asyncio.sleep(0.05)
        if mode == "session":  # where it has no connection beyond the limit
            calls.append(asyncio.create_task(note("renew", backend.renew([renewed]))))
            await asyncio.sleep(0.05)
        source.give(connection)
        await asyncio.gather(*calls)
        first = ["release", "withdraw", "renew"][: len(calls) - 60]
        assert order == [*first, *["acquire"] * 60]
        await backend.close()

    play(history())


def test_head_of_a_queue_that_was_empty_for_long_keeps_its_place() -> None:
    """The second to come found that nothing had moved for a second, took the first for interrupted and removed it."""

    async def history() -> None:
        runtime = AsyncioRuntime()
        queue, free, order = PoolQueue(runtime), [], []  # type: ignore[var-annotated]

        async def wait(name: str) -> None:
            await queue.wait_for(lambda: free.pop() if free else None, math.inf)
            order.append(name)
            free.append(object())
            queue.call_one()

        queue._moved = runtime.now() - 2 * STUCK
        tasks = [asyncio.create_task(wait(name)) for name in "abcdef"]
        await asyncio.sleep(0.01)
        free.append(object())
        queue.call_one()
        await asyncio.gather(*tasks)
        assert order == list("abcdef")

    play(history())


def test_head_that_was_interrupted_as_it_entered_is_removed_after_a_while() -> None:
    async def history() -> None:
        runtime = AsyncioRuntime()
        for lane in ("first", "rest"):
            queue = PoolQueue(runtime)
            getattr(queue, lane).append(runtime.signal())
            started = queue._moved = runtime.now()
            assert await queue.wait_for(lambda: "slot", started + 20) == "slot"
            assert STUCK / 2 < runtime.now() - started < 10
            assert not queue.first
            assert not queue.rest

    play(history())
