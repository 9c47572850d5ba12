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


def test_many_tasks_lose_their_leases_at_once_and_all_are_told() -> None:
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
