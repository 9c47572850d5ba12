"""Waiting for a lock through the client: woken in order, on time, and without a trace when it gives up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.errors import AcquireTimeout
from leasehold.testing.contract.expect import raises
from leasehold.testing.contract.registry import core_case, store_case
from leasehold.values import Capability

if TYPE_CHECKING:
    from leasehold._face.client import AsyncClient
    from leasehold._face.lease import AsyncLease
    from leasehold.testing.contract.lab import Lab

MANY = 150  # holders: more than any store has to do with at a time


@store_case()
async def a_waiting_call_gets_the_lock_when_it_is_released(lab: Lab) -> None:
    holder, waiter = lab.client(), lab.client()
    lease = await holder.lock("x").acquire()
    task = lab.spawn(waiter.lock("x").acquire())
    await lab.live(lab.ttl * 0.3)
    assert not task.done
    assert await lease.release()
    next_lease = await lab.flowing(task.join())
    assert next_lease.fence > lease.fence
    await next_lease.release()


@store_case()
async def a_waiting_call_gets_the_lock_when_its_holder_vanishes(lab: Lab) -> None:
    lease = await lab.client().lock("x", renew=False).acquire()
    next_lease = await lab.flowing(lab.client().lock("x").acquire(timeout=lab.ttl * 20))
    assert next_lease.fence > lease.fence
    assert lease.lost.is_set()
    await next_lease.release()


@store_case()
async def a_call_that_gives_up_says_who_held_the_lock_and_leaves_nothing(lab: Lab) -> None:
    lease = await lab.client(label="first").lock("x", ttl=lab.ttl * 20).acquire()
    began = lab.runtime.now()
    error = await lab.flowing(raises(AcquireTimeout, lab.client().lock("x").acquire(timeout=lab.ttl * 0.3)))
    elapsed = lab.runtime.now() - began
    assert elapsed >= lab.ttl * 0.3
    assert error.holder is not None
    assert error.holder.label == "first"
    assert "first" in str(error)
    assert 0 < error.waited <= elapsed
    assert error.retry_after is None or 0 < error.retry_after <= lab.ttl * 20
    await lease.release()
    assert await lab.free("x")


@core_case()
async def a_call_without_patience_asks_once(lab: Lab) -> None:
    lease = await lab.client().lock("x").acquire(timeout=0)
    client = lab.client()
    await raises(AcquireTimeout, client.lock("x").acquire(timeout=0))
    assert await client.lock("x").try_acquire() is None
    assert await client.lock("x").try_acquire() is None
    await lease.release()
    assert await lab.free("x")


@store_case()
async def waits_that_were_given_up_and_fully_answered_leave_nothing(lab: Lab) -> None:
    client = lab.client()
    lease = await lab.client().lock("x", ttl=lab.ttl * 20).acquire()
    before = lab.harness.size()
    for _ in range(3):
        await lab.flowing(raises(AcquireTimeout, client.lock("x", ttl=lab.ttl * 20).acquire(timeout=lab.ttl * 0.1)))
    after, state = lab.harness.size(), await lab.client().inspect("x")
    await lease.release()
    assert after == before, "something stays in the store for every wait that was given up"
    assert state is not None
    assert not state.waiting
    assert await lab.free("x")


@store_case(Capability.FIFO)
async def waiting_calls_are_served_in_order(lab: Lab) -> None:
    order: list[int] = []

    async def take(client: AsyncClient, number: int) -> None:
        async with client.lock("x", ttl=lab.ttl * 20).hold():
            order.append(number)

    lease = await lab.client().lock("x", ttl=lab.ttl * 20).acquire()
    tasks = []
    for number in range(5):
        tasks.append(lab.spawn(take(lab.client(), number)))
        await lab.waiting("x", number + 1)
    await lease.release()
    for task in tasks:
        await lab.flowing(task.join())
    assert order == [0, 1, 2, 3, 4]


@store_case()
async def many_contenders_never_overlap_and_all_get_their_turn(lab: Lab) -> None:
    inside: list[int] = []
    overlaps: list[int] = []
    turns: dict[int, int] = {}

    async def work(number: int) -> None:
        client = lab.client()
        for _ in range(3):
            async with client.lock("x", ttl=lab.ttl * 50).hold():
                inside.append(number)
                await lab.driver.breathe()
                if inside != [number]:
                    overlaps.append(number)
                inside.remove(number)
            turns[number] = turns.get(number, 0) + 1

    tasks = [lab.spawn(work(number)) for number in range(6)]
    for task in tasks:
        await lab.flowing(task.join())
    assert not overlaps
    assert turns == dict.fromkeys(range(6), 3)


@store_case(Capability.SHARED)
async def readers_work_together_and_a_writer_alone(lab: Lab) -> None:
    client = lab.client()
    pair = client.rwlock("x")
    first, second = await pair.read.acquire(), await pair.read.acquire()
    assert await pair.write.try_acquire() is None
    await first.release()
    await second.release()
    async with pair.write.hold():
        assert await pair.read.try_acquire() is None


@store_case(Capability.SHARED)
async def one_client_may_read_many_times_over(lab: Lab) -> None:
    pair = lab.client().rwlock("x", ttl=lab.ttl * 20)
    leases = [await pair.read.acquire(timeout=lab.ttl * 10) for _ in range(MANY)]
    assert await pair.write.try_acquire() is None
    await _release_all(leases)
    await (await pair.write.acquire(timeout=lab.ttl * 10)).release()


@store_case(Capability.PERMITS)
async def one_client_may_have_all_of_many_permits(lab: Lab) -> None:
    semaphore = lab.client().semaphore("x", MANY, ttl=lab.ttl * 20)
    leases = [await semaphore.acquire(timeout=lab.ttl * 10) for _ in range(MANY)]
    assert await semaphore.try_acquire() is None
    await _release_all(leases)
    await (await semaphore.acquire(timeout=lab.ttl * 10)).release()


async def _release_all(leases: list[AsyncLease]) -> None:
    for lease in leases:
        assert await lease.release()


@core_case()
async def several_locks_are_taken_together_or_not_at_all(lab: Lab) -> None:
    client = lab.client()
    busy = await lab.client().lock("b", ttl=lab.ttl * 20).acquire()
    assert await client.lock_all(["c", "a", "b"]).try_acquire() is None
    await lab.flowing(raises(AcquireTimeout, client.lock_all(["c", "a", "b"]).acquire(timeout=lab.ttl * 0.2)))
    assert await lab.free("a")
    assert await lab.free("c")
    await busy.release()
    async with client.lock_all(["c", "a", "b"]).hold() as leases:
        assert set(leases.fences) == {"a", "b", "c"}
        assert await client.lock("a").try_acquire() is None
    assert await lab.free("a")


@core_case()
async def a_reentrant_lock_keeps_its_fence_until_the_last_release(lab: Lab) -> None:
    lock = lab.client().lock("x", reentrant=True)
    outer = await lock.acquire()
    inner = await lock.acquire(timeout=0)
    assert inner.fence == outer.fence
    assert await outer.release()
    assert await outer.release() is False
    inner.check()
    assert await lab.client().lock("x").try_acquire() is None
    assert await inner.release()
    assert await lab.free("x")
