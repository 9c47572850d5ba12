"""Looking at locks, and breaking one."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from leasehold.errors import BackendUnavailable, ConfigurationError, LeaseLost
from leasehold.testing.contract.expect import granted, lost, placed, raises, refused, signalled
from leasehold.testing.contract.registry import core_case, store_case
from leasehold.testing.faults import Faults
from leasehold.values import Capability, LossReason, Mode, Refusal

if TYPE_CHECKING:
    from leasehold._face.client import AsyncClient
    from leasehold.spi import Operating
    from leasehold.testing.contract.lab import Lab
    from leasehold.values import Grant


@store_case(Capability.INSPECT)
async def a_held_lock_shows_its_holder(lab: Lab) -> None:
    client = lab.client(label="worker")
    assert await client.inspect("x") is None
    lease = await client.lock("x", reason="nightly").acquire()
    state = await lab.client().inspect("x")
    assert state is not None
    assert state.name == "x"
    assert state.mode is Mode.EXCLUSIVE
    (holding,) = state.holdings
    assert holding.fence == lease.fence
    assert holding.holder.label == "worker"
    assert holding.holder.reason == "nightly"
    assert holding.held_for >= 0
    assert 0 < holding.expires_in <= 2 * lab.ttl
    await lease.release()
    assert await client.inspect("x") is None


@core_case(Capability.INSPECT)
async def a_question_whose_answer_was_lost_is_asked_again(lab: Lab) -> None:
    faults = Faults()
    client = lab.client(faults)
    lease = await client.lock("x", ttl=lab.ttl * 20).acquire()
    faults.drop_next_reply("inspect")
    assert await client.inspect("x") is not None
    faults.refuse_next("list")
    assert [state.name for state in await client.locks()] == ["x"]
    for _ in range(2):
        faults.drop_next_reply("inspect")
    await raises(BackendUnavailable, client.inspect("x"))
    await lease.release()


@store_case(Capability.INSPECT, Capability.FIFO)
async def waiters_are_shown_in_order(lab: Lab) -> None:
    lease = await lab.client().lock("x", ttl=lab.ttl * 20).acquire()
    tasks = []
    for number in range(3):
        client = lab.client(label=f"w{number}")
        tasks.append(lab.spawn(client.lock("x", ttl=lab.ttl * 20).acquire()))
        await lab.waiting("x", number + 1)
    state = await lab.client().inspect("x")
    assert state is not None
    assert [holder.label for holder in state.waiting] == ["w0", "w1", "w2"]
    await lease.release()
    for task in tasks:
        await (await lab.flowing(task.join())).release()


@store_case(Capability.INSPECT)
async def locks_are_listed_by_prefix_and_only_of_their_namespace(lab: Lab) -> None:
    client = lab.client()
    other = lab.client(namespace=lab.namespace + ":other")
    leases = [await client.lock(name).acquire() for name in ("a1", "a2", "b1", "a%")]
    leases.append(await other.lock("a3").acquire())
    assert [state.name for state in await client.locks()] == ["a%", "a1", "a2", "b1"]
    assert [state.name for state in await client.locks("a")] == ["a%", "a1", "a2"]
    assert [state.name for state in await client.locks("a%")] == ["a%"]
    assert [state.name for state in await other.locks()] == ["a3"]
    for lease in leases:
        await lease.release()


@store_case(Capability.INSPECT)
async def a_broken_lock_is_waited_out_and_its_holder_learns_why(lab: Lab) -> None:
    lease = await lab.client().lock("x", ttl=lab.ttl * 3).acquire()
    operator = lab.client(label="operator")
    assert await operator.break_lock("x", fence=lease.fence, reason="stuck job") is True
    assert await operator.lock("x").try_acquire() is None
    await lab.live(lab.ttl * 1.5)
    await lab.eventually(lease.lost.is_set, "the holder learns of it with its next renewal")
    assert lease.loss is not None
    assert lease.loss.reason is LossReason.BROKEN
    assert "stuck job" in lease.loss.detail
    heir = await lab.flowing(operator.lock("x").acquire(timeout=lab.ttl * 20))
    assert heir.fence > lease.fence
    assert await lease.release() is False
    heir.check()
    await heir.release()


@store_case(Capability.INSPECT)
async def a_lock_broken_now_is_free_at_once(lab: Lab) -> None:
    lease = await lab.client().lock("x", ttl=lab.ttl * 6).acquire()
    operator = lab.client()
    assert await operator.break_lock("x", fence=lease.fence, reason="sure it is dead", now=True) is True
    heir = await operator.lock("x", ttl=lab.ttl * 20).acquire(timeout=0)
    assert heir.fence > lease.fence
    await lab.live(lab.ttl * 2.5)
    await lab.eventually(lease.lost.is_set, "the holder learns of it with its next renewal")
    assert lease.loss is not None
    assert lease.loss.reason is LossReason.BROKEN
    await heir.release()


@store_case(Capability.INSPECT)
async def a_broken_holder_that_releases_lets_the_next_one_in_early(lab: Lab) -> None:
    lease = await lab.client().lock("x", ttl=lab.ttl * 20).acquire()
    operator = lab.client()
    await operator.break_lock("x", fence=lease.fence, reason="stuck job")
    assert await lease.release() is False
    assert lease.loss is not None
    assert lease.loss.reason is LossReason.BROKEN
    assert "stuck job" in lease.loss.detail
    assert lease.lost.is_set()
    heir = await operator.lock("x").acquire(timeout=0)
    await heir.release()


@store_case(Capability.INSPECT)
async def a_block_that_ends_before_the_next_renewal_learns_that_its_lock_was_broken(lab: Lab) -> None:
    client, operator = lab.client(), lab.client()
    for now in (False, True):
        error = await raises(LeaseLost, _hold_while_broken(client, operator, now=now))
        assert error.reason is LossReason.BROKEN
        assert "stuck job" in str(error)
        assert error.completed
        assert await lab.free("x")


async def _hold_while_broken(client: AsyncClient, operator: AsyncClient, *, now: bool) -> None:
    async with client.lock("x", ttl=60.0).hold() as lease:
        assert await operator.break_lock("x", fence=lease.fence, reason="stuck job", now=now)


@store_case(Capability.INSPECT)
async def releasing_a_broken_grant_is_answered_with_the_break_and_frees_what_was_kept(lab: Lab) -> None:
    backend, operator = lab.backend(), cast("Operating", lab.backend())
    grant = granted(await backend.try_acquire(lab.claim(ttl=lab.ttl * 20)))
    assert await operator.break_(grant.claim.key, grant.fence, "stuck job", now=False)
    refused(await lab.backend().try_acquire(lab.claim()))
    renewal = lost((await backend.renew([grant]))[0])
    assert lost(await backend.release(grant)) == renewal
    assert renewal.reason is LossReason.BROKEN
    assert "stuck job" in renewal.detail
    granted(await lab.backend().try_acquire(lab.claim()))


@store_case(Capability.INSPECT)
async def a_broken_grant_is_not_granted_again_when_its_claim_is_sent_again(lab: Lab) -> None:
    backend, operator = lab.backend(), cast("Operating", lab.backend())
    for now in (False, True):
        claim = lab.claim(f"x{now}", ttl=lab.ttl * 20)
        grant = granted(await backend.try_acquire(claim))
        assert await operator.break_(claim.key, grant.fence, "stuck job", now=now)
        again = await backend.try_acquire(claim)  # the first answer was lost, so to speak
        # A store may take it for a new claim when nothing is left of the old grant, and must not revive that.
        assert isinstance(again, Refusal) or (now and again.fence > grant.fence), again
        assert lost((await backend.renew([grant]))[0]).reason is LossReason.BROKEN
        assert lost(await backend.release(grant)).reason is LossReason.BROKEN


@store_case(Capability.INSPECT)
async def releasing_a_grant_that_was_broken_at_once_is_answered_with_the_break(lab: Lab) -> None:
    backend, operator = lab.backend(), cast("Operating", lab.backend())
    grant = granted(await backend.try_acquire(lab.claim(ttl=lab.ttl * 20)))
    assert await operator.break_(grant.claim.key, grant.fence, "stuck job", now=True)
    heir = granted(await lab.backend().try_acquire(lab.claim(ttl=lab.ttl * 20)))
    loss = lost(await backend.release(grant))
    assert loss.reason is LossReason.BROKEN
    assert "stuck job" in loss.detail
    granted((await lab.backend().renew([heir]))[0])
    assert await lab.backend().release(heir) is True


@store_case(Capability.INSPECT, Capability.MIN_HOLD)
async def a_broken_grant_that_is_kept_for_its_min_hold_is_answered_with_the_break_again(lab: Lab) -> None:
    backend, operator = lab.backend(), cast("Operating", lab.backend())
    grant = granted(await backend.try_acquire(lab.claim(ttl=lab.ttl * 20, min_hold=lab.ttl * 20)))
    assert await operator.break_(grant.claim.key, grant.fence, "stuck job", now=False)
    loss = lost(await backend.release(grant))
    assert loss.reason is LossReason.BROKEN
    for client in (backend, lab.backend()):  # the answer was lost, and the request is sent again
        assert lost(await client.release(grant)) == loss
        assert lost((await client.renew([grant]))[0]) == loss
    refused(await lab.backend().try_acquire(lab.claim()))


@store_case(Capability.INSPECT, Capability.PUSH)
async def releasing_a_broken_grant_signals_the_next_in_line(lab: Lab) -> None:
    backend, operator = lab.backend(), cast("Operating", lab.backend())

    async def break_it(holding: Grant) -> None:
        assert await operator.break_(holding.claim.key, holding.fence, "stuck job", now=False)

    async def release_it(holding: Grant) -> None:
        lost(await backend.release(holding))

    await signalled(lab, release_it, "release", before=break_it)


@store_case(Capability.INSPECT, Capability.PUSH)
async def breaking_a_lock_at_once_signals_the_next_in_line(lab: Lab) -> None:
    operator = cast("Operating", lab.backend())

    async def break_it(holding: Grant) -> None:
        assert await operator.break_(holding.claim.key, holding.fence, "stuck job", now=True)

    await signalled(lab, break_it, "break")


@store_case(Capability.INSPECT)
async def only_the_named_grant_is_broken(lab: Lab) -> None:
    client = lab.client()
    lease = await client.lock("x").acquire()
    assert await client.break_lock("x", fence=lease.fence + 1, reason="wrong number") is False
    assert await client.break_lock("free", fence=lease.fence, reason="wrong name") is False
    await lease.renew()
    await lease.release()


@store_case(Capability.INSPECT, Capability.SHARED)
async def each_of_several_readers_can_be_broken_alone(lab: Lab) -> None:
    for place in range(3):
        await _break_two_of(lab, place, Mode.SHARED, 1)


@store_case(Capability.INSPECT, Capability.PERMITS)
async def each_of_several_permits_can_be_broken_alone(lab: Lab) -> None:
    for place in range(3):
        await _break_two_of(lab, place, Mode.PERMIT, 3)


async def _break_two_of(lab: Lab, place: int, mode: Mode, capacity: int) -> None:
    """Of three that hold together, break one with its next renewal, and then another at once."""
    backend, operator = lab.backend(), cast("Operating", lab.backend())
    claims = [lab.claim(f"x{place}", ttl=lab.ttl * 20, mode=mode, capacity=capacity) for _ in range(3)]
    grants = [granted(await backend.try_acquire(claim)) for claim in claims]
    broken: list[Grant] = []
    for now in (False, True):
        broken.append(grants[(place + len(broken)) % len(grants)])
        assert await operator.break_(broken[-1].claim.key, broken[-1].fence, "stuck job", now=now)
        for grant, answer in zip(grants, await backend.renew(grants), strict=True):
            if grant in broken:
                assert lost(answer).reason is LossReason.BROKEN
            else:
                granted(answer)


@store_case(Capability.INSPECT, Capability.MIN_HOLD)
async def what_is_only_kept_for_its_min_hold_cannot_be_broken(lab: Lab) -> None:
    backend, operator = lab.backend(), cast("Operating", lab.backend())
    grant = granted(await backend.try_acquire(lab.claim(ttl=lab.ttl * 20, min_hold=lab.ttl * 20)))
    assert await backend.release(grant) is True
    for now in (False, True):
        assert await operator.break_(grant.claim.key, grant.fence, "stuck job", now=now) is False
    refused(await lab.backend().try_acquire(lab.claim()))


@store_case(Capability.INSPECT, Capability.FENCING)
async def a_raised_fence_lifts_every_later_grant_and_no_present_one(lab: Lab) -> None:
    client = lab.client()
    lease = await client.lock("x").acquire()
    mine = lease.fence
    floor = await client.raise_fence("x", mine + 1_000_000_000, reason="the resource has seen more")
    assert floor >= mine + 1_000_000_000
    assert await client.raise_fence("x", 1, reason="a fence is never lowered") >= floor
    await lease.renew()
    assert lease.fence == mine
    assert await lease.release() is True
    later = await lab.client().lock("x").acquire(timeout=0)
    assert later.fence > floor
    await later.release()
    await client.raise_fence("never used", floor + 5, reason="restored from a backup")
    first = await client.lock("never used").acquire(timeout=0)
    assert first.fence > floor + 5
    await first.release()
    for fence in (0, -1, True, 2**53 - 1, 2**60):
        await raises(ConfigurationError, client.raise_fence("x", fence, reason="r"))
    await raises(ConfigurationError, client.raise_fence("x", 7, reason=""))


@store_case(Capability.INSPECT, Capability.FIFO)
async def a_raised_fence_lifts_the_grants_of_those_who_wait_already(lab: Lab) -> None:
    """Also one that is not above what the store gives to newcomers by now."""
    client = lab.client()
    lease = await client.lock("x", ttl=lab.ttl * 20).acquire()
    waiter = lab.spawn(lab.client().lock("x", ttl=lab.ttl * 20).acquire())
    await lab.waiting("x", 1)
    for _ in range(20):
        newest = await client.lock("other", ttl=lab.ttl * 20).acquire()
        await newest.release()
    floor = await client.raise_fence("x", newest.fence - 1, reason="the resource has seen more")
    assert floor >= newest.fence - 1
    await lease.release()
    heir = await lab.flowing(waiter.join())
    assert heir.fence > floor
    await heir.release()


@store_case(Capability.INSPECT, Capability.FIFO)
async def every_waiter_gets_a_fence_above_what_raising_it_answered(lab: Lab) -> None:
    """A store may order its fences by when a claim was made: then those who wait have lower ones than newcomers."""
    store, backend, operator = lab.queueing(), lab.backend(), cast("Operating", lab.backend())
    holding = granted(await store.join(lab.claim(ttl=lab.ttl * 20)))
    places = [placed(await store.join(lab.claim(ttl=lab.ttl * 20))) for _ in range(3)]
    floor = await operator.raise_fence(holding.claim.key, 1)
    for place in places:
        await backend.release(holding)
        holding = granted(await store.turn(place))
        assert holding.fence > floor


@core_case(Capability.INSPECT)
async def breaking_needs_a_fence_and_a_reason(lab: Lab) -> None:
    client = lab.client()
    await raises(ConfigurationError, client.break_lock("x", fence=0, reason="r"))
    await raises(ConfigurationError, client.break_lock("x", fence=2**53, reason="r"))
    await raises(ConfigurationError, client.break_lock("x", fence=True, reason="r"))
    await raises(ConfigurationError, client.break_lock("x", fence=1, reason=""))
