"""The block under `hold`: never without the lock, its own errors never hidden, the loss never silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.errors import AcquireTimeout, LeaseLost
from leasehold.testing.contract.expect import raises
from leasehold.testing.contract.registry import core_case
from leasehold.testing.faults import Faults
from leasehold.values import LossReason

if TYPE_CHECKING:
    from leasehold.testing.contract.lab import Lab


@core_case()
async def a_block_runs_under_the_lock_and_releases_it(lab: Lab) -> None:
    async with lab.client().lock("x").hold() as lease:
        lease.check()
        assert await lab.client().lock("x").try_acquire() is None
    assert await lab.free("x")


@core_case()
async def a_block_never_runs_without_the_lock(lab: Lab) -> None:
    lease = await lab.client().lock("x", ttl=lab.ttl * 20).acquire()
    ran = False
    try:
        async with lab.client().lock("x").hold(timeout=0):
            ran = True
    except AcquireTimeout:
        pass
    assert not ran
    await lease.release()


@core_case()
async def the_error_of_the_block_is_the_one_that_is_seen(lab: Lab) -> None:
    client = lab.client()
    for exception in (ValueError("mine"), KeyboardInterrupt("mine")):
        seen: BaseException | None = None
        try:
            async with client.lock("x").hold():
                raise exception
        except BaseException as error:
            seen = error
        assert seen is exception
        assert await lab.free("x")


@core_case()
async def the_error_of_the_block_is_not_hidden_by_the_loss(lab: Lab) -> None:
    seen: ValueError | None = None
    try:
        async with lab.client().lock("x", renew=False).hold() as lease:
            await _end_of(lab, lease.lost.is_set)
            raise ValueError("mine")
    except ValueError as error:
        seen = error
    except LeaseLost:
        assert lab.driver.name != "threads", "only a runtime that can cancel may interrupt the block"
        return
    assert seen is not None
    assert any("lost" in note for note in seen.__notes__)


@core_case()
async def a_loss_before_the_end_of_the_block_is_raised(lab: Lab) -> None:
    error: LeaseLost | None = None
    try:
        async with lab.client().lock("x", renew=False).hold() as lease:
            await _end_of(lab, lease.lost.is_set)
    except LeaseLost as lost:
        error = lost
    assert error is not None
    assert error.reason is LossReason.EXPIRED
    if lab.driver.name == "threads":
        assert error.completed


@core_case()
async def a_loss_seen_by_check_is_raised_once_and_without_a_note(lab: Lab) -> None:
    error: LeaseLost | None = None
    try:
        async with lab.client().lock("x", renew=False).hold() as lease:
            if lab.harness.clock is not None:
                await lab.pass_time(lab.ttl * 2)  # nothing else runs in between
                lease.check()
                raise AssertionError("the check must see the loss")
            await _end_of(lab, lease.lost.is_set)
    except LeaseLost as lost:
        error = lost
    assert error is not None
    assert not getattr(error, "__notes__", [])


@core_case()
async def a_grant_that_the_store_forgot_is_reported_at_the_end(lab: Lab) -> None:
    error: LeaseLost | None = None
    try:
        async with lab.client().lock("x", ttl=lab.ttl * 20).hold() as lease:
            await lab.backend().release(lease._tenure.grant)  # behind its back
    except LeaseLost as lost:
        error = lost
    assert error is not None
    assert error.completed


@core_case()
async def a_failed_release_after_good_work_is_no_error(lab: Lab) -> None:
    faults = Faults()
    async with lab.client(faults).lock("x").hold():
        for _ in range(3):
            faults.reject_next("release")
    assert faults.calls.count("release") >= 1


@core_case()
async def a_hold_is_for_one_block(lab: Lab) -> None:
    hold = lab.client().lock("x").hold()
    async with hold:
        pass
    await raises(TypeError, hold.__aenter__())


@core_case()
async def a_mutex_has_the_shape_of_threading_lock(lab: Lab) -> None:
    mutex = lab.client().lock("x").as_mutex()
    assert await mutex.acquire()
    assert mutex.locked()
    assert await mutex.acquire(blocking=False) is False
    assert await lab.flowing(mutex.acquire(timeout=lab.ttl * 0.1)) is False
    await mutex.release()
    assert not mutex.locked()
    await raises(RuntimeError, mutex.release())
    async with mutex:
        assert mutex.locked()
    assert await lab.free("x")


@core_case()
async def a_mutex_does_not_hide_that_its_lease_was_lost(lab: Lab) -> None:
    mutex = lab.client().lock("x", renew=False).as_mutex()
    await mutex.acquire()
    await lab.pass_time(lab.ttl * 1.2)
    assert not mutex.locked()
    await raises(LeaseLost, mutex.release())


async def _end_of(lab: Lab, over: object) -> None:
    """Let the ttl pass without renewal, and give the keeper the chance to cancel the block."""
    await lab.pass_time(lab.ttl * 1.2)
    await lab.eventually(over, "the lease is lost")  # type: ignore[arg-type]
    for _ in range(50):
        await lab.driver.breathe()
