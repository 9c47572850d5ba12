"""Interrupted at every possible point: a cancelled task at each await, a raising signal handler between any two lines.

Whatever the point, nothing may stay behind that is renewed, and nothing that outlives one ttl.
"""

from __future__ import annotations

import gc
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from leasehold.errors import AcquireTimeout
from leasehold.testing.contract.registry import case
from leasehold.testing.faults import Faults
from leasehold.values import Capability

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from leasehold.testing.contract.lab import Lab

MOST_POINTS = 600


async def _sweep(lab: Lab, make: Callable[[Faults], Coroutine[Any, Any, Any]], after: Callable[[], Any]) -> int:
    """Interrupt at point 1, 2, 3 … until the operation ends by itself; returns how many points there were."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # a lease that was dropped on the way is reported
        warnings.simplefilter("ignore", RuntimeWarning)  # so is a coroutine that did not get to start
        for point in range(1, MOST_POINTS):
            faults = Faults()
            faults.suspending = True
            interrupted = await lab.driver.interrupt(lambda faults=faults: make(faults), point)  # type: ignore[misc]
            gc.collect()
            await after()
            if not interrupted:
                return point - 1
    raise AssertionError("the operation never ended by itself")


@case()
async def an_interrupted_acquire_leaves_nothing_that_is_renewed(lab: Lab) -> None:
    numbers = iter(range(10_000))
    name = f"n{next(numbers)}"

    async def acquire_and_release(faults: Faults) -> None:
        lease = await lab.client(faults).lock(name).acquire(timeout=lab.ttl * 10)
        await lease.release()

    async def nothing_left() -> None:
        nonlocal name
        await _free_within_a_ttl(lab, name)
        name = f"n{next(numbers)}"

    assert await _sweep(lab, acquire_and_release, nothing_left) > 3


@case()
async def an_interrupted_block_leaves_nothing_that_is_renewed(lab: Lab) -> None:
    numbers = iter(range(10_000))
    name = f"n{next(numbers)}"

    async def hold(faults: Faults) -> None:
        async with lab.client(faults).lock(name).hold(timeout=lab.ttl * 10) as lease:
            lease.check()

    async def nothing_left() -> None:
        nonlocal name
        await _free_within_a_ttl(lab, name)
        name = f"n{next(numbers)}"

    assert await _sweep(lab, hold, nothing_left) > 3


@case()
async def an_interrupted_release_can_be_repeated(lab: Lab) -> None:
    faults = Faults()
    client = lab.client(faults)
    lease = await client.lock("x").acquire()

    async def release(fresh: Faults) -> None:
        faults.suspending = fresh.suspending
        await lease.release()

    async def released_in_the_end() -> None:
        nonlocal lease
        faults.suspending = False
        await lease.release()
        assert await lab.free("x"), "a release that was interrupted could not be finished"
        lease = await client.lock("x").acquire(timeout=0)

    points = await _sweep(lab, release, released_in_the_end)
    assert points >= 2
    await lease.release()


@case(Capability.FIFO)
async def an_interrupted_waiter_does_not_stand_in_the_way(lab: Lab) -> None:
    numbers = iter(range(10_000))
    name = f"n{next(numbers)}"
    first = await lab.client().lock(name, ttl=lab.ttl * 5000).acquire()

    async def wait(faults: Faults) -> None:
        await lab.client(faults).lock(name).acquire(timeout=0.02)

    async def nobody_in_the_way() -> None:
        nonlocal first, name
        await first.release()
        await _free_within_a_ttl(lab, name)
        name = f"n{next(numbers)}"
        first = await lab.client().lock(name, ttl=lab.ttl * 5000).acquire()

    assert await _sweep_waiting(lab, wait, nobody_in_the_way) > 3
    await first.release()


async def _sweep_waiting(lab: Lab, make: Callable[[Faults], Any], after: Callable[[], Any]) -> int:
    """Like `_sweep`, for an operation that ends with a timeout."""

    async def patient(faults: Faults) -> None:
        with suppress(AcquireTimeout):
            await make(faults)

    return await _sweep(lab, lambda faults: _with_time(lab, patient(faults)), after)


async def _with_time(lab: Lab, coroutine: Coroutine[Any, Any, None]) -> None:
    """A wait of 20 ms ends only if the clock goes on; one turned by hand is turned by a helper beside it."""
    if lab.harness.clock is None:
        await coroutine
        return
    over = False

    async def turn() -> None:
        while not over:
            await lab.pass_time(0.005)
            await lab.driver.breathe()

    helper = lab.spawn(turn())
    try:
        await coroutine
    finally:
        over = True
        await helper.join()


async def _free_within_a_ttl(lab: Lab, name: str) -> None:
    """The claim was withdrawn, or its ttl ends it; a renewed orphan would hold it for ever."""
    if await lab.client().inspect(name) is None:
        return
    for _ in range(12):
        await lab.live(lab.ttl * 0.1)
    assert await lab.client().inspect(name) is None, "something is left that is renewed or outlives its ttl"
