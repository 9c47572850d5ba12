"""How a loss interrupts a block on an event loop, and no more than that block."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._runtimes.asyncio import AsyncioRuntime, AsyncioScope, AsyncioSignal
from leasehold._runtimes.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Coroutine


def on_a_loop(program: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(program, 30))


def me() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def test_a_block_that_is_interrupted_takes_its_cancellation_back() -> None:
    async def program() -> None:
        scope = AsyncioScope()
        scope.cancel()
        with pytest.raises(asyncio.CancelledError) as raised:
            await asyncio.sleep(20)
        assert await scope.leave(raised.value) is True
        assert me().cancelling() == 0
        await asyncio.sleep(0)

    on_a_loop(program())


def test_a_block_that_ended_before_it_could_be_interrupted_does_not_pass_that_on() -> None:
    """The cancellation is on its way, and would hit whatever the program awaits next."""

    async def program() -> None:
        for error in (None, ValueError()):
            scope = AsyncioScope()
            scope.cancel()
            assert await scope.leave(error) is False
            assert me().cancelling() == 0
            await asyncio.sleep(0)

    on_a_loop(program())


async def leave_the_cancellation_alone(scope: AsyncioScope) -> None:
    """The block ends by a cancellation that is not the scope's own."""
    with pytest.raises(asyncio.CancelledError) as raised:
        await asyncio.sleep(20)
    assert await scope.leave(raised.value) is False
    assert me().cancelling() == 1
    me().uncancel()


@pytest.mark.parametrize("first", ["loss", "outside"])
def test_a_cancellation_from_outside_is_not_taken_back_whichever_comes_first(first: str) -> None:
    async def program() -> None:
        scope = AsyncioScope()
        for one in ("loss", "outside") if first == "loss" else ("outside", "loss"):
            if one == "loss":
                scope.cancel()
            else:
                me().cancel()
        await leave_the_cancellation_alone(scope)

    on_a_loop(program())


def test_a_cancellation_from_outside_that_was_not_delivered_yet_still_arrives() -> None:
    async def program() -> None:
        scope = AsyncioScope()
        scope.cancel()
        me().cancel()
        with pytest.raises(asyncio.CancelledError):
            await scope.leave(None)
            await asyncio.sleep(20)
        me().uncancel()

    on_a_loop(program())


def test_a_task_that_was_cancelled_before_the_block_is_interrupted_in_it_as_any_other() -> None:
    async def program() -> None:
        me().cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(20)
        scope = AsyncioScope()  # clean-up, while the cancellation is pending
        scope.cancel()
        with pytest.raises(asyncio.CancelledError) as raised:
            await asyncio.sleep(20)
        assert await scope.leave(raised.value) is True
        assert me().cancelling() == 1
        me().uncancel()

    on_a_loop(program())


def test_a_block_that_was_not_interrupted_leaves_a_cancellation_alone() -> None:
    async def program() -> None:
        scope = AsyncioScope()
        me().cancel()
        await leave_the_cancellation_alone(scope)

    on_a_loop(program())


def test_a_block_is_interrupted_once_and_not_after_its_end() -> None:
    async def program() -> None:
        scope = AsyncioScope()
        scope.cancel()
        scope.cancel()
        assert me().cancelling() == 1
        await scope.leave(None)
        scope.cancel()
        assert me().cancelling() == 0
        await asyncio.sleep(0)

    on_a_loop(program())


@pytest.mark.parametrize("by_itself", [True, False])
def test_a_block_that_gets_the_loss_from_its_own_call_is_not_interrupted(by_itself: bool) -> None:
    async def program() -> None:
        scope = AsyncioScope()
        if by_itself:
            scope.loss_is_raised()
        else:

            async def other() -> None:
                scope.loss_is_raised()

            await asyncio.create_task(other())
        scope.cancel()
        assert me().cancelling() == (0 if by_itself else 1)
        await scope.leave(None)
        await asyncio.sleep(0)

    on_a_loop(program())


# Tasks and signals


def test_a_task_is_waited_for_until_its_end_or_the_deadline() -> None:
    async def program() -> None:
        runtime, may_end = AsyncioRuntime(), asyncio.Event()

        async def work() -> None:
            await may_end.wait()

        task = runtime.spawn(work(), "work")
        assert await task.join(runtime.now() + 0.01) is False
        assert await task.join(runtime.now() - 1) is False
        may_end.set()
        assert await task.join() is True
        assert await task.join(runtime.now() - 1) is True, "it is over"

    on_a_loop(program())


def test_a_task_does_not_wait_for_itself() -> None:
    async def program() -> None:
        runtime = AsyncioRuntime()
        joined: list[bool] = []
        tasks: list[Any] = []

        async def work() -> None:
            await asyncio.sleep(0)
            joined.append(await tasks[0].join())

        tasks.append(runtime.spawn(work(), "work"))
        assert await tasks[0].join() is True
        assert joined == [True]

    on_a_loop(program())


def test_a_task_that_nobody_refers_to_is_not_collected() -> None:
    async def program() -> None:
        done: list[bool] = []
        runtime = AsyncioRuntime()

        async def work() -> None:
            event = asyncio.Event()
            asyncio.get_running_loop().call_later(0.01, event.set)
            await event.wait()
            done.append(True)

        runtime.spawn(work(), "work")
        for _ in range(3):
            await asyncio.sleep(0)
            gc.collect()
        await asyncio.sleep(0.1)
        assert done == [True]
        assert not runtime._tasks

    on_a_loop(program())


@pytest.mark.parametrize("deadline", [None, 20.0])
def test_a_signal_ends_every_wait_and_a_deadline_ends_its_own(deadline: float | None) -> None:
    async def program() -> None:
        signal = AsyncioSignal()
        until = None if deadline is None else SYSTEM_CLOCK.now() + deadline
        waits = [asyncio.create_task(signal.wait(SYSTEM_CLOCK, until)) for _ in range(3)]
        early = asyncio.create_task(signal.wait(SYSTEM_CLOCK, SYSTEM_CLOCK.now() + 0.01))
        assert await early is False
        assert not any(wait.done() for wait in waits)
        signal.set()
        assert await asyncio.gather(*waits) == [True] * 3
        assert await signal.wait(SYSTEM_CLOCK, SYSTEM_CLOCK.now() - 1) is True
        signal.clear()
        assert await signal.wait(SYSTEM_CLOCK, SYSTEM_CLOCK.now() - 1) is False
        assert signal._waiters == set()

    on_a_loop(program())
