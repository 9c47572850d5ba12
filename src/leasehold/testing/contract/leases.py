"""A lease is renewed while it is held, and its holder learns of the loss on its own clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.errors import ConfigurationError, LeaseLost
from leasehold.testing.contract.expect import granted, raises, refused
from leasehold.testing.contract.registry import core_case, store_case
from leasehold.testing.faults import Faults
from leasehold.values import Capability, LossReason

if TYPE_CHECKING:
    from leasehold.testing.contract.lab import Lab
    from leasehold.values import Loss


@store_case()
async def a_held_lease_is_renewed_for_as_long_as_it_is_held(lab: Lab) -> None:
    lease = await lab.client().lock("x").acquire()
    await lab.live(lab.ttl * 4)
    lease.check()
    assert not lease.lost.is_set()
    assert await lab.client().lock("x").try_acquire() is None
    assert await lease.release()


@core_case()
async def a_released_lease_is_not_renewed_any_more(lab: Lab) -> None:
    faults = Faults()
    lease = await lab.client(faults).lock("x").acquire()
    await lab.live(lab.ttl * 1.2)
    await lease.release()
    before = faults.calls.count("renew")
    assert before > 0
    await lab.live(lab.ttl * 2)
    assert faults.calls.count("renew") <= before + 1, "one may have been on its way"
    assert await lab.free("x")


@core_case()
async def all_due_leases_are_renewed_in_one_call(lab: Lab) -> None:
    faults = Faults()
    client = lab.client(faults)
    leases = [await client.lock(f"n{number}").acquire() for number in range(20)]
    await lab.live(lab.ttl * 1.5)
    one_by_one = 20 * 1.5 * 3  # and a store that is slow to grant has them due at different moments
    assert 0 < faults.calls.count("renew") < one_by_one / 2
    for lease in leases:
        lease.check()
        await lease.release()


@core_case()
async def remaining_counts_down_and_is_below_the_ttl(lab: Lab) -> None:
    lease = await lab.client().lock("x", renew=False).acquire()
    first = lease.remaining()
    assert 0 < first < lab.ttl
    await lab.pass_time(lab.ttl * 0.3)
    assert lease.remaining() < first
    await lab.pass_time(lab.ttl * 2)
    assert lease.remaining() == 0
    await lease.release()


@core_case()
async def a_lease_that_is_not_renewed_is_lost_at_its_deadline(lab: Lab) -> None:
    losses: list[Loss] = []
    error = None
    try:
        async with lab.client().lock("x", renew=False).hold(on_lost=losses.append) as lease:
            await lab.pass_time(lab.ttl * 1.1)
            await lab.eventually(lambda: bool(losses), "on_lost is called")
    except LeaseLost as lost:
        error = lost
    assert error is not None
    assert error.reason is LossReason.EXPIRED
    assert lease.lost.is_set()
    assert [loss.reason for loss in losses] == [LossReason.EXPIRED]
    assert (await raises(LeaseLost, lease.renew())).reason is LossReason.EXPIRED


@core_case()
async def check_wants_the_time_that_is_needed(lab: Lab) -> None:
    lease = await lab.client().lock("x", renew=False).acquire()
    lease.check(need=lab.ttl * 0.2)
    try:
        lease.check(need=lease.ttl * 5)
    except ConfigurationError as mistake:
        assert "can never pass" in str(mistake)
    else:
        raise AssertionError("there cannot be five ttls left")
    await lab.pass_time(lease.ttl * 0.5)
    try:
        lease.check(need=lease.ttl * 0.7)
    except LeaseLost as lost:
        assert "needed" in str(lost)
    else:
        raise AssertionError("half of the ttl is over")
    await lease.release()


@core_case()
async def an_explicit_renewal_moves_the_deadline(lab: Lab) -> None:
    lease = await lab.client().lock("x", renew=False).acquire()
    await lab.pass_time(lab.ttl * 0.6)
    left = lease.remaining()
    assert await lease.renew() > left
    await lab.pass_time(lab.ttl * 0.6)
    lease.check()
    await lease.release()


@core_case()
async def a_hung_holder_is_stopped_by_max_hold(lab: Lab) -> None:
    lease = await lab.client().lock("x", max_hold=lab.ttl * 2).acquire()
    await lab.live(lab.ttl * 1.5)
    lease.check()
    await lab.live(lab.ttl * 0.7)
    assert lease.lost.is_set()
    assert lease.loss is not None
    assert lease.loss.reason is LossReason.MAX_HOLD
    other = await lab.flowing(lab.client().lock("x").acquire(timeout=lab.ttl * 20))
    assert other.fence > lease.fence
    await other.release()


@core_case()
async def a_sleep_of_three_ttls_is_a_loss_and_never_a_renewal_that_hides_it(lab: Lab) -> None:
    lease = await lab.client().lock("x").acquire()
    await lab.pass_time(lab.ttl * 3)
    if lab.harness.clock is not None:  # on a clock turned by hand no keeper could renew meanwhile
        assert lease.lost.is_set()
    await lease.release()


@core_case()
async def waiting_for_the_loss_ends_with_the_loss_or_the_release(lab: Lab) -> None:
    lost = await lab.client().lock("x", renew=False).acquire()
    assert await lab.flowing(lost.lost.wait()) is True
    kept = await lab.client().lock("y").acquire()
    assert await lab.flowing(kept.lost.wait(lab.ttl * 0.2)) is False
    task = lab.spawn(kept.lost.wait())
    await kept.release()
    assert await lab.flowing(task.join()) is False


@core_case()
async def a_released_lease_refuses_to_be_used_without_asking_the_store(lab: Lab) -> None:
    faults = Faults()
    lease = await lab.client(faults).lock("x").acquire()
    assert await lease.release() is True
    asked = len(faults.calls)
    assert await lease.release() is False
    error = await raises(LeaseLost, lease.renew())
    assert error.reason is LossReason.RELEASED
    assert lease.remaining() == 0
    assert not lease.lost.is_set()
    assert len(faults.calls) == asked


@core_case()
async def each_lease_of_one_shared_lock_object_is_its_own(lab: Lab) -> None:
    lock = lab.client().lock("x")
    first = await lock.acquire()
    await first.release()
    second = await lock.acquire()
    assert await first.release() is False
    second.check()
    assert second.fence > first.fence
    await second.release()


@store_case(Capability.ABANDONED)
async def the_next_holder_learns_that_the_last_one_vanished(lab: Lab) -> None:
    client = lab.client()
    clean = await client.lock("x").acquire()
    assert clean.abandoned is False
    await clean.release()
    vanished = await client.lock("x", renew=False).acquire()
    assert vanished.abandoned is False
    await lab.pass_time(lab.ttl * 1.2)
    heir = await lab.client().lock("x").acquire(timeout=0)
    assert heir.abandoned is True
    await heir.release()
    after = await lab.client().lock("x").acquire()
    assert after.abandoned is False
    await after.release()


@store_case(Capability.ABANDONED)
async def the_news_of_an_abandoned_lock_is_not_lost_with_a_withdrawn_claim(lab: Lab) -> None:
    backend = lab.backend()
    first = await backend.try_acquire(lab.claim())
    await lab.pass_time(lab.ttl * 1.2)
    unheard = lab.claim()
    await backend.try_acquire(unheard)
    await backend.withdraw(unheard)
    heir = await backend.try_acquire(lab.claim())
    assert getattr(first, "abandoned", None) is False
    assert getattr(heir, "abandoned", None) is True


@store_case(Capability.MIN_HOLD)
async def a_lock_is_kept_for_its_min_hold_after_an_early_release(lab: Lab) -> None:
    client = lab.client()
    lease = await client.lock("x", min_hold=lab.ttl * 3).acquire()
    assert await lease.release() is True
    assert await lab.client().lock("x").try_acquire() is None
    await lab.pass_time(lab.ttl * 1.5)
    assert await lab.client().lock("x").try_acquire() is None
    await lab.pass_time(lab.ttl * 1.8)
    later = await lab.client().lock("x").acquire(timeout=0)
    assert later.abandoned is not True
    await later.release()


@store_case(Capability.MIN_HOLD)
async def a_withdrawal_after_the_release_does_not_end_a_min_hold(lab: Lab) -> None:
    """As after a release of a claim of which a copy may still be under way."""
    backend = lab.backend()
    for doubt in (False, True):
        claim = lab.claim(f"x{doubt}", ttl=lab.ttl * 20, min_hold=lab.ttl * 20)
        assert await backend.release(granted(await backend.try_acquire(claim))) is True
        await backend.withdraw(claim, doubt=doubt)
        refused(await lab.backend().try_acquire(lab.claim(f"x{doubt}")))


@store_case(Capability.MIN_HOLD)
async def a_hold_longer_than_min_hold_is_released_at_once(lab: Lab) -> None:
    lease = await lab.client().lock("x", min_hold=lab.ttl * 0.5).acquire()
    await lab.live(lab.ttl * 0.8)
    await lease.release()
    assert await lab.free("x")
