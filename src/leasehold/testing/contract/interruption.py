"""Interrupted at every possible point: a cancelled task at each await, a raising signal handler between any two lines.

Whatever the point, nothing may stay behind that is renewed, and nothing that outlives one ttl. Each point has a lock
of its own, and all are looked at once, one ttl after the last.
"""

from __future__ import annotations

import functools
import gc
import warnings
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from leasehold.errors import AcquireTimeout
from leasehold.testing.contract.registry import store_case
from leasehold.testing.faults import Faults
from leasehold.values import Capability

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

    from leasehold._face.client import AsyncClient
    from leasehold.testing.contract.lab import Lab

MOST_POINTS = 2_000


async def _sweep(
    lab: Lab,
    make: Callable[[AsyncClient, str], Coroutine[Any, Any, Any]],
    before: Callable[[str], Awaitable[None]] | None = None,
    most: int = MOST_POINTS,
) -> list[str]:
    """Interrupt at point 1, 2, 3 … until the operation ends by itself; returns the names, one for each point."""
    used: list[str] = []
    for point in _points(lab, most):
        faults = Faults()
        faults.suspending = True
        name = f"n{point}"
        used.append(name)
        client = lab.client(faults)
        if before is not None:
            await before(name)
        attempt = functools.partial(make, client, name)
        interrupted = await lab.driver.interrupt(attempt, point, lab.harness.swept)
        _check_that_nothing_is_kept(client, point)
        await lab.close(client)
        if not interrupted:
            return used
    assert most < MOST_POINTS, "the operation never ended by itself"
    return used


def _points(lab: Lab, most: int) -> range:
    """Threads have a point at every line, which a harness may thin out; tasks have few, and each counts."""
    return range(1, most, lab.harness.stride if lab.driver.name == "threads" else 1)


def _check_that_nothing_is_kept(client: AsyncClient, point: int) -> None:
    """A lease without a reference must be unknown to the keeper, or it would be renewed for ever."""
    opened = client._opened
    if opened is not None and any(not tenure.is_parked for tenure in opened.keeper.tenures()):
        gc.collect()
        kept = [tenure for tenure in opened.keeper.tenures() if not tenure.is_parked]
        assert not kept, f"interrupted at point {point}, a lease without a reference is renewed"


async def _all_free_after_a_ttl(lab: Lab, used: list[str]) -> None:
    """The claims were withdrawn, or their ttl ends them; a renewed orphan would be there for ever."""
    gc.collect()
    for _ in range(13):
        await lab.live(lab.ttl * 0.1)
    await lab.live(lab.harness.lateness)
    witness = lab.client()
    left = [name for name in used if await witness.inspect(name) is not None]
    assert not left, f"{len(left)} of {len(used)} points left something that is renewed or outlives its ttl: {left}"


@contextmanager
def _quiet() -> Iterator[None]:
    """A lease that was dropped on the way is reported, and so is a coroutine that did not get to start.

    Garbage is collected where we say, not in the middle of anything: the report of such a coroutine imports a module,
    which fails in a frame without builtins, as the constructor of a named tuple is.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        gc.disable()
        try:
            yield
            gc.collect()
        finally:
            gc.enable()


@store_case()
async def an_interrupted_acquire_leaves_nothing_that_is_renewed(lab: Lab) -> None:
    async def acquire_and_release(client: AsyncClient, name: str) -> None:
        lease = await client.lock(name).acquire(timeout=lab.ttl * 10)
        await lease.release()

    with _quiet():
        used = await _sweep(lab, acquire_and_release)
        assert len(used) > 3
        await _all_free_after_a_ttl(lab, used)


@store_case()
async def an_interrupted_block_leaves_nothing_that_is_renewed(lab: Lab) -> None:
    async def hold(client: AsyncClient, name: str) -> None:
        async with client.lock(name).hold(timeout=lab.ttl * 10) as lease:
            lease.check()

    with _quiet():
        used = await _sweep(lab, hold)
        assert len(used) > 3
        await _all_free_after_a_ttl(lab, used)


@store_case()
async def an_interrupted_release_can_be_repeated(lab: Lab) -> None:
    faults = Faults()
    client, witness = lab.client(faults), lab.client()
    with _quiet():
        for point in _points(lab, MOST_POINTS):
            lease = await client.lock("x").acquire(timeout=0)
            faults.suspending = True
            interrupted = await lab.driver.interrupt(lease.release, point, lab.harness.swept)
            faults.suspending = False
            await lease.release()
            assert await witness.inspect("x") is None, "a release that was interrupted could not be finished"
            if not interrupted:
                assert point > 2
                return
    raise AssertionError("the release never ended by itself")


@store_case(Capability.FIFO)
async def an_interrupted_waiter_does_not_stand_in_the_way(lab: Lab) -> None:
    holder = lab.client()
    taken = []

    async def take(name: str) -> None:
        taken.append(await holder.lock(name, ttl=lab.ttl * 5000).acquire(timeout=0))

    async def wait(client: AsyncClient, name: str) -> None:
        with suppress(AcquireTimeout):
            await client.lock(name).acquire(timeout=1e-3)

    with _quiet():
        with lab.running_clock():
            # How often a waiter looks at the clock differs from run to run, so there is no last point to wait for.
            used = await _sweep(lab, wait, take, most=1_000)
        assert len(used) > 3
        for lease in taken:
            await lease.release()
        await _all_free_after_a_ttl(lab, used)


@store_case(Capability.RANGES)
async def an_interrupted_release_of_a_lock_that_lingers_can_be_repeated(lab: Lab) -> None:
    """Wherever it was interrupted, the client has it still, and gives it back at its end."""
    faults, used = Faults(), []
    client = lab.client(faults)
    with _quiet():
        for point in _points(lab, MOST_POINTS):
            used.append(f"n{point}")
            lease = await client.lock(used[-1], ttl=lab.ttl * 50, linger=1).acquire(timeout=0)
            faults.suspending = True
            interrupted = await lab.driver.interrupt(lease.release, point, lab.harness.swept)
            faults.suspending = False
            await lease.release()
            if not interrupted:
                break
        await lab.close(client)
    witness = lab.client()
    left = [name for name in used if await witness.inspect(name) is not None]
    assert not left, f"{len(left)} of {len(used)} points left a lock that lingers for ever: {left}"


@store_case(Capability.RANGES)
async def an_interrupted_acquire_of_a_lock_that_lingers_leaves_nothing_that_is_renewed(lab: Lab) -> None:
    async def take_it_twice(client: AsyncClient, name: str) -> None:
        lock = client.lock(name, linger=min(1.0, lab.ttl / 2))
        for _ in range(2):
            lease = await lock.acquire(timeout=lab.ttl * 10)
            await lease.release()
            del lease

    with _quiet():
        used = await _sweep(lab, take_it_twice)
        await _all_free_after_a_ttl(lab, used)
