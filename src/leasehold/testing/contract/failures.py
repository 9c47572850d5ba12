"""Lost replies, late requests, outages: an unknown outcome is never read as no, and nothing is left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.errors import (
    AcquireTimeout,
    BackendError,
    BackendRejected,
    BackendUnavailable,
    LeaseLost,
    OutcomeUnknown,
)
from leasehold.testing.contract.expect import raises
from leasehold.testing.contract.registry import core_case, store_case
from leasehold.testing.faults import Faults
from leasehold.values import Capability, LossReason

if TYPE_CHECKING:
    from leasehold._face.client import AsyncClient
    from leasehold.testing.contract.lab import Lab
    from leasehold.values import Loss


def _acquiring(lab: Lab) -> str:
    """The verb of the first request of an acquire that may wait."""
    return "join" if Capability.FIFO in lab.capabilities else "try_acquire"


@store_case()
async def a_grant_whose_reply_was_lost_is_recognised(lab: Lab) -> None:
    faults = Faults()
    client = lab.client(faults)
    faults.drop_next_reply(_acquiring(lab))
    lease = await lab.flowing(client.lock("x").acquire(timeout=lab.ttl * 10))
    lease.check()
    assert await lab.client().lock("x").try_acquire() is None
    assert await lease.release()
    assert await lab.free("x")


@store_case()
async def a_late_copy_of_a_request_takes_nothing_after_the_release(lab: Lab) -> None:
    faults = Faults()
    client = lab.client(faults)
    faults.drop_next_request(_acquiring(lab))
    lease = await lab.flowing(client.lock("x", ttl=lab.ttl * 20).acquire(timeout=lab.ttl * 10))
    assert await lease.release()
    await faults.deliver_late()
    assert await lab.free("x")


@core_case()
async def a_lost_reply_to_a_single_try_is_asked_again(lab: Lab) -> None:
    faults = Faults()
    client = lab.client(faults)
    faults.drop_next_reply("try_acquire")
    lease = await lab.flowing(client.lock("x").try_acquire())
    assert lease is not None
    await lease.release()
    assert await lab.free("x")


@store_case()
async def a_late_copy_of_a_request_that_was_refused_takes_nothing(lab: Lab) -> None:
    faults = Faults()
    lease = await lab.client().lock("x", ttl=lab.ttl * 20).acquire()
    faults.drop_next_request("try_acquire")
    assert await lab.flowing(lab.client(faults).lock("x", ttl=lab.ttl * 20).try_acquire()) is None
    await lease.release()
    await faults.deliver_late()
    assert await lab.free("x")


@store_case(Capability.FIFO)
async def a_turn_whose_reply_was_lost_is_recognised(lab: Lab) -> None:
    faults = Faults()
    first = await lab.client().lock("x", ttl=lab.ttl * 20).acquire()
    faults.drop_next_reply("turn")
    task = lab.spawn(lab.client(faults).lock("x", ttl=lab.ttl * 20).acquire(timeout=lab.ttl * 10))
    await lab.waiting("x", 1)
    await first.release()
    lease = await lab.flowing(task.join())
    lease.check()
    assert await lease.release()
    assert await lab.free("x")


@store_case()
async def a_request_that_arrives_after_its_caller_gave_up_gets_nothing(lab: Lab) -> None:
    faults = Faults()
    client = lab.client(faults, connect_timeout=lab.ttl)
    for _ in range(200):
        faults.drop_next_request(_acquiring(lab))
    await lab.flowing(raises(OutcomeUnknown, client.lock("x").acquire(timeout=lab.ttl * 0.2)))
    await lab.eventually(lambda: "withdraw" in faults.calls and not faults.under_way, "it is withdrawn")
    await faults.deliver_late()
    assert await lab.free("x")
    lease = await lab.client().lock("x").acquire(timeout=0)
    await lease.release()


@core_case()
async def a_renewal_whose_reply_was_lost_keeps_the_lease(lab: Lab) -> None:
    faults = Faults()
    lease = await lab.client(faults).lock("x").acquire()
    faults.drop_next_reply("renew")
    faults.drop_next_reply("renew")
    await lab.live(lab.ttl * 2)
    assert faults.calls.count("renew") >= 3
    lease.check()
    assert await lease.release()


@core_case()
async def renewals_that_fail_are_tried_again_until_the_network_heals(lab: Lab) -> None:
    faults = Faults()
    lease = await lab.client(faults).lock("x").acquire()
    faults.refuse_next("renew")
    faults.drop_next_request("renew")
    faults.reject_next("renew")
    await lab.live(lab.ttl * 3)
    lease.check()
    assert await lease.release()


@core_case()
async def a_holder_cut_off_silently_learns_of_its_loss_by_its_own_clock(lab: Lab) -> None:
    losses: list[Loss] = []
    faults = Faults()
    client = lab.client(faults)
    lease = await client.lock("x").acquire()
    block = lab.spawn(_hold_until_lost(lab, client, losses))
    await lab.eventually(lambda: client._opened is not None and client._opened.keeper.held == 2, "both are held")
    before = lease.remaining()
    faults.cut()
    await lab.flowing(_until(lab, lease.lost.is_set, before * 2))
    await lab.eventually(lambda: bool(losses), "on_lost is called")
    assert lease.loss is not None
    assert lease.loss.reason is LossReason.UNCONFIRMED
    faults.heal()
    other = await lab.flowing(lab.client().lock("x").acquire(timeout=lab.ttl * 20))
    assert other.fence > lease.fence
    assert lease.lost.is_set()
    await other.release()
    await lab.flowing(raises(LeaseLost, block.join()))


@core_case()
async def a_confirmation_that_comes_after_the_deadline_is_discarded_and_given_back(lab: Lab) -> None:
    faults = Faults()
    lease = await lab.client(faults).lock("x").acquire()
    for _ in range(10):  # one late answer alone is made good by a second request
        faults.delay_next_reply(lab.ttl * 1.5, "renew")
    await lab.flowing(_until(lab, lease.lost.is_set, lab.ttl * 4))
    other = await lab.flowing(lab.client().lock("x").acquire(timeout=lab.ttl * 20))
    assert other.fence > lease.fence
    assert lease.lost.is_set()
    await other.release()


@core_case()
async def a_grant_that_is_used_up_when_it_arrives_is_never_returned(lab: Lab) -> None:
    faults = Faults()
    faults.delay_next_reply(lab.ttl * 1.5, _acquiring(lab))
    lease = await lab.flowing(lab.client(faults).lock("x").acquire(timeout=lab.ttl * 20))
    assert faults.calls.count(_acquiring(lab)) >= 2
    assert 0 < lease.remaining() < lab.ttl
    lease.check()
    await lease.release()


@core_case()
async def validity_counts_from_before_the_request_was_sent(lab: Lab) -> None:
    faults = Faults()
    faults.delay_next_reply(lab.ttl * 0.5, _acquiring(lab))
    lease = await lab.flowing(lab.client(faults).lock("x", renew=False).acquire())
    assert lease.remaining() <= lab.ttl * 0.5
    await lease.release()


@store_case()
async def a_release_whose_reply_was_lost_has_released(lab: Lab) -> None:
    faults = Faults()
    lease = await lab.client(faults).lock("x", ttl=lab.ttl * 20).acquire()
    faults.drop_next_reply("release")
    assert await lab.flowing(lease.release()) is True
    assert await lab.free("x")


@core_case()
async def a_failed_release_can_be_tried_again_and_is_not_renewed_meanwhile(lab: Lab) -> None:
    faults = Faults()
    lease = await lab.client(faults).lock("x", ttl=lab.ttl * 20).acquire()
    faults.cut()
    await lab.flowing(raises(BackendError, lease.release()))
    faults.heal()
    assert lease.remaining() == 0
    assert await lease.release() is True
    assert await lab.free("x")


@store_case()
async def a_late_release_does_not_free_the_same_clients_newer_lease(lab: Lab) -> None:
    faults = Faults()
    client = lab.client(faults)
    old = await client.lock("x", ttl=lab.ttl * 20).acquire()
    faults.cut()
    await lab.flowing(raises(BackendError, old.release()))
    faults.heal()
    await old.release()
    new = await client.lock("x", ttl=lab.ttl * 20).acquire()
    await faults.deliver_late()
    new.check()
    await new.renew()
    assert await new.release()


@core_case()
async def a_store_that_was_never_reached_is_unavailable(lab: Lab) -> None:
    faults = Faults()
    client = lab.client(faults, connect_timeout=lab.ttl)
    for _ in range(500):
        faults.refuse_next(_acquiring(lab))
    error = await lab.flowing(raises(BackendUnavailable, client.lock("x").acquire(timeout=None)))
    assert error.name == "x"
    assert "withdraw" not in faults.calls


@core_case()
async def a_store_that_comes_back_in_time_is_waited_for(lab: Lab) -> None:
    faults = Faults()
    for _ in range(3):
        faults.refuse_next(_acquiring(lab))
    lease = await lab.flowing(lab.client(faults).lock("x").acquire(timeout=lab.ttl * 50))
    await lease.release()


@core_case()
async def an_outage_while_waiting_does_not_cost_the_lock(lab: Lab) -> None:
    faults = Faults()
    first = await lab.client().lock("x", ttl=lab.ttl * 50).acquire()
    task = lab.spawn(lab.client(faults).lock("x").acquire(timeout=lab.ttl * 100))
    if Capability.FIFO in lab.capabilities:
        await lab.waiting("x", 1)
        await lab.eventually(lambda: not faults.under_way, "the answer with the place arrives")
    faults.cut()
    await first.release()
    await lab.live(lab.ttl * 2)
    assert not task.done
    faults.heal()
    lease = await lab.flowing(task.join())
    lease.check()
    await lease.release()
    assert await lab.free("x")


@core_case()
async def a_rejection_is_raised_at_once_with_the_name_of_the_lock(lab: Lab) -> None:
    faults = Faults()
    faults.reject_next(_acquiring(lab))
    error = await raises(BackendRejected, lab.client(faults).lock("x").acquire(timeout=None))
    assert error.name == "x"
    assert error.backend


@store_case(Capability.FIFO)
async def a_waiter_whose_place_was_given_up_stands_in_line_again(lab: Lab) -> None:
    faults = Faults()
    first = await lab.client().lock("x", ttl=lab.ttl * 50).acquire()
    task = lab.spawn(lab.client(faults).lock("x").acquire(timeout=lab.ttl * 200))
    await lab.waiting("x", 1)
    faults.cut()
    await lab.live(lab.ttl * 4)
    await lab.waiting("x", 0)
    faults.heal()
    await lab.flowing(lab.waiting("x", 1))
    await first.release()
    lease = await lab.flowing(task.join())
    await lease.release()


@store_case()
async def giving_up_during_an_outage_leaves_nothing_that_outlives_a_ttl(lab: Lab) -> None:
    faults = Faults()
    first = await lab.client().lock("x", ttl=lab.ttl * 50).acquire()
    task = lab.spawn(lab.client(faults).lock("x").acquire(timeout=lab.ttl * 2))
    if Capability.FIFO in lab.capabilities:
        await lab.waiting("x", 1)
    faults.cut()
    await lab.flowing(raises((AcquireTimeout, BackendError), task.join()))  # type: ignore[arg-type]
    await lab.live(lab.ttl * 4)
    await first.release()
    assert await lab.free("x")


async def _until(lab: Lab, condition: object, limit: float) -> None:
    deadline = lab.runtime.now() + limit
    while not condition():  # type: ignore[operator]
        assert lab.runtime.now() < deadline, "it took longer than it may"
        await lab.runtime.sleep(lab.ttl / 50)


async def _hold_until_lost(lab: Lab, client: AsyncClient, losses: list[Loss]) -> None:
    async with client.lock("y").hold(on_lost=losses.append):
        while not losses:
            await lab.driver.breathe()
