"""asyncio: the block is cancelled when its lease is lost, and nothing else ever is."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from leasehold.errors import LeaseLost
from leasehold.testing import ManualStore
from leasehold.values import LossReason

if TYPE_CHECKING:
    from collections.abc import Coroutine


def on_a_loop(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 60))


def test_a_block_that_waits_is_cancelled_when_its_lease_is_lost() -> None:
    async def main() -> None:
        store = ManualStore()
        async with store.connect_async() as client:
            with pytest.raises(LeaseLost) as lost:
                async with client.lock("x").hold() as lease:
                    store.lose(lease)
                    await asyncio.sleep(3600)
            assert lost.value.reason is LossReason.TAKEN
            assert not lost.value.completed
            assert isinstance(lost.value.__cause__, asyncio.CancelledError)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0.01)  # nothing is left to hit the code after the block

    on_a_loop(main())


def test_a_lease_used_as_a_context_manager_is_cancelled_too() -> None:
    async def main() -> None:
        store = ManualStore()
        async with store.connect_async() as client:
            lease = await client.lock("x").acquire()
            with pytest.raises(LeaseLost):
                async with lease:
                    store.lose(lease)
                    await asyncio.sleep(3600)

    on_a_loop(main())


def test_a_cancellation_from_outside_stays_a_cancellation() -> None:
    async def main() -> None:
        store = ManualStore()
        client = store.connect_async()

        async def work() -> None:
            async with client.lock("x").hold():
                await asyncio.sleep(3600)

        task = asyncio.create_task(work())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await client.inspect("x") is None
        await client.close()

    on_a_loop(main())


def test_a_cancellation_from_outside_together_with_the_loss_is_not_swallowed() -> None:
    async def main() -> None:
        store = ManualStore()
        client = store.connect_async()
        leases: list[Any] = []

        async def work() -> None:
            async with client.lock("x").hold() as lease:
                leases.append(lease)
                await asyncio.sleep(3600)

        task = asyncio.create_task(work())
        await asyncio.sleep(0.01)
        store.lose(leases[0])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.close()

    on_a_loop(main())


def test_a_timeout_around_the_block_still_works() -> None:
    async def main() -> None:
        store = ManualStore()
        async with store.connect_async() as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02), client.lock("x").hold():
                    await asyncio.sleep(3600)
            assert await client.inspect("x") is None

    on_a_loop(main())


def test_a_timeout_inside_the_block_is_the_blocks_own() -> None:
    async def main() -> None:
        store = ManualStore()
        async with store.connect_async() as client:
            async with client.lock("x").hold() as lease:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await asyncio.sleep(3600)
                lease.check()

    on_a_loop(main())


def test_a_block_that_swallows_the_cancellation_still_ends_with_the_loss() -> None:
    async def main() -> None:
        store = ManualStore()
        async with store.connect_async() as client:
            with pytest.raises(LeaseLost) as lost:
                async with client.lock("x").hold() as lease:
                    store.lose(lease)
                    try:
                        await asyncio.sleep(3600)
                    except asyncio.CancelledError:
                        pass
            assert lost.value.completed
        await asyncio.sleep(0.01)

    on_a_loop(main())


def test_a_loss_raised_by_the_blocks_own_check_does_not_cancel_its_cleanup() -> None:
    async def main() -> None:
        store = ManualStore()
        cleaned = False
        async with store.connect_async() as client:
            with pytest.raises(LeaseLost):
                async with client.lock("x").hold() as lease:
                    store.clock.advance(31)
                    try:
                        lease.check()
                    except LeaseLost:
                        await asyncio.sleep(0.05)  # the keeper wakes up meanwhile, and leaves us alone
                        cleaned = True
                        raise
        assert cleaned

    on_a_loop(main())


def test_nested_blocks_lose_only_what_was_lost() -> None:
    async def main() -> None:
        store = ManualStore()
        async with store.connect_async() as client:
            async with client.lock("outer").hold() as outer:
                with pytest.raises(LeaseLost, match="inner"):
                    async with client.lock("inner").hold() as inner:
                        store.lose(inner)
                        await asyncio.sleep(3600)
                outer.check()
                await asyncio.sleep(0.01)
            with pytest.raises(LeaseLost, match="outer"):
                async with client.lock("outer").hold() as outer:
                    async with client.lock("inner").hold():
                        store.lose(outer)
                        await asyncio.sleep(3600)
            assert await client.inspect("inner") is None

    on_a_loop(main())


def test_only_the_task_that_entered_the_block_is_cancelled() -> None:
    async def main() -> None:
        store = ManualStore()
        async with store.connect_async() as client:
            lease = await client.lock("x").acquire()

            async def helper() -> str:
                await asyncio.sleep(0.05)
                return "not cancelled"

            task = asyncio.create_task(helper())
            with pytest.raises(LeaseLost):
                async with lease:
                    store.lose(lease)
                    await task
            # The block was awaiting the helper, and asyncio cancels what a cancelled task awaits; another helper lives.
            assert task.cancelled()
            assert await helper() == "not cancelled"

    on_a_loop(main())


def test_a_loop_blocked_for_three_ttls_finds_the_loss_first() -> None:
    """Real time: the process itself blocks its loop, as a synchronous call in async code does."""
    import leasehold

    async def main() -> None:
        async with leasehold.connect_async("memory://", ttl=0.2) as client:
            other = leasehold.connect_async("memory://")
            seen: list[str] = []
            with pytest.raises(LeaseLost):
                async with client.lock("x").hold() as lease:
                    await asyncio.sleep(0.1)  # the keeper is at work
                    time.sleep(0.6)
                    seen.append("lost" if lease.lost.is_set() else "renewed")
                    await asyncio.sleep(0)
                    await asyncio.sleep(3600)
            assert seen == ["lost"]
            await other.close()

    on_a_loop(main())


def test_a_cancelled_release_still_releases() -> None:
    async def main() -> None:
        store = ManualStore()
        async with store.connect_async() as client:
            store.faults.suspending = True
            lease = await client.lock("x").acquire()
            task = asyncio.create_task(lease.release())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            store.faults.suspending = False
            assert await client.inspect("x") is None

    on_a_loop(main())


def test_many_tasks_lose_their_leases_at_once_and_all_are_cancelled() -> None:
    async def main() -> None:
        store = ManualStore()
        async with store.connect_async() as client:
            started = 0

            async def work(number: int) -> str:
                nonlocal started
                try:
                    async with client.lock(f"n{number}").hold():
                        started += 1
                        await asyncio.sleep(3600)
                except LeaseLost as lost:
                    return str(lost.reason)
                return "never"

            tasks = [asyncio.create_task(work(number)) for number in range(200)]
            while started < 200:
                await asyncio.sleep(0)
            store.clock.advance(31)
            assert set(await asyncio.gather(*tasks)) == {"expired"}

    on_a_loop(main())


def test_a_cancellation_from_outside_that_comes_right_after_the_loss_is_passed_on() -> None:
    """Else a task group or a timeout that ends this task would see an error of ours, and not be obeyed."""

    async def main() -> None:
        store = ManualStore()
        async with store.connect_async() as client:
            tasks: list[asyncio.Task[None]] = []

            async def work() -> None:
                # `on_lost` is called when the block was cancelled for the loss, and has not noticed it yet.
                async with client.lock("x").hold(on_lost=lambda _: tasks[0].cancel()) as lease:
                    store.lose(lease)
                    await asyncio.sleep(3600)

            tasks.append(asyncio.create_task(work()))
            with pytest.raises(asyncio.CancelledError):
                await tasks[0]
            assert tasks[0].cancelled()

    on_a_loop(main())


def test_a_loss_while_the_block_ends_after_a_cancellation_from_outside_is_not_raised_in_its_place() -> None:
    async def main() -> None:
        store = ManualStore()
        async with store.connect_async() as client:
            leases: list[Any] = []

            async def work() -> None:
                async with client.lock("x").hold() as lease:
                    leases.append(lease)
                    try:
                        await asyncio.sleep(3600)
                    finally:
                        store.lose(lease)
                        await asyncio.sleep(3600)  # clean-up, cut short by the loss

            task = asyncio.create_task(work())
            while not leases:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()

    on_a_loop(main())


def test_a_check_by_another_task_does_not_keep_the_block_from_being_cancelled() -> None:
    async def main() -> None:
        store = ManualStore()
        async with store.connect_async() as client:
            leases: list[Any] = []

            async def work() -> None:
                async with client.lock("x", renew=False).hold() as lease:
                    leases.append(lease)
                    await asyncio.sleep(3600)

            task = asyncio.create_task(work())
            while not leases:
                await asyncio.sleep(0)
            store.clock.advance(31)
            with pytest.raises(LeaseLost):
                leases[0].check()  # before the keeper has looked
            await asyncio.wait([task], timeout=20)
            assert task.done(), "the block was never cancelled"
            assert isinstance(task.exception(), LeaseLost)

    on_a_loop(main())


def test_a_task_that_is_cancelled_again_while_it_releases_still_frees_its_lock() -> None:
    async def main() -> None:
        store = ManualStore()
        async with store.connect_async() as client:
            started = asyncio.Event()

            async def work() -> None:
                async with client.lock("x").hold():
                    store.faults.delay_next_reply(5, "release")
                    store.faults.delay_next_reply(5, "release")
                    started.set()

            task = asyncio.create_task(work())
            await started.wait()
            for _ in range(4):
                await asyncio.sleep(0.01)
                task.cancel()
            assert not task.done(), "the clean-up is not over"
            while not task.done():
                store.clock.advance(1)
                await asyncio.sleep(0.001)
            assert task.cancelled()
            assert await client.inspect("x") is None

    on_a_loop(main())


def test_a_task_cancelled_again_in_its_withdrawal_leaves_nothing() -> None:
    async def main() -> None:
        store = ManualStore()
        async with store.connect_async() as client:
            store.faults.delay_next_reply(5, "try_acquire")
            backend: Any = client._open().backend
            withdraw, begun, may_go_on = backend.withdraw, asyncio.Event(), asyncio.Event()

            async def withdraw_slowly(*subject: Any, **options: Any) -> None:
                begun.set()
                await may_go_on.wait()
                await withdraw(*subject, **options)

            backend.withdraw = withdraw_slowly
            task = asyncio.create_task(client.lock("x").try_acquire())
            while "try_acquire" not in store.faults.calls:
                await asyncio.sleep(0)
            task.cancel()
            await begun.wait()
            task.cancel()
            await asyncio.sleep(0.01)
            assert not task.done(), "the clean-up is not over"
            may_go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await client.inspect("x") is None

    on_a_loop(main())
