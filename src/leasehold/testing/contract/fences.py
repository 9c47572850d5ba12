"""Fencing tokens rise strictly from grant to grant of a name, and are never reused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing.contract.expect import granted
from leasehold.testing.contract.registry import core_case, store_case
from leasehold.values import MAX_FENCE, Capability, Mode

if TYPE_CHECKING:
    from leasehold.testing.contract.lab import Lab


@store_case(Capability.FENCING)
async def fences_are_positive_whole_numbers_that_json_keeps_exact(lab: Lab) -> None:
    grant = granted(await lab.backend().try_acquire(lab.claim()))
    assert type(grant.fence) is int
    assert 1 <= grant.fence <= MAX_FENCE


@store_case(Capability.FENCING)
async def fences_rise_over_releases_from_different_clients(lab: Lab) -> None:
    backends = [lab.backend(), lab.backend()]
    last = 0
    for number in range(50):
        backend = backends[number % 2]
        grant = granted(await backend.try_acquire(lab.claim()))
        assert grant.fence > last
        last = grant.fence
        await backend.release(grant)


@store_case(Capability.FENCING)
async def fences_rise_over_expiry_and_withdrawal(lab: Lab) -> None:
    backend = lab.backend()
    first = granted(await backend.try_acquire(lab.claim()))
    await lab.pass_time(first.ttl * 1.1)
    second = granted(await backend.try_acquire(lab.claim()))
    await backend.withdraw(second.claim)
    third = granted(await backend.try_acquire(lab.claim()))
    assert first.fence < second.fence < third.fence


@store_case(Capability.FENCING, Capability.SHARED)
async def readers_have_fences_of_their_own_and_a_later_writer_a_higher_one(lab: Lab) -> None:
    backend = lab.backend()
    readers = [granted(await backend.try_acquire(lab.claim(mode=Mode.SHARED))) for _ in range(3)]
    assert len({grant.fence for grant in readers}) == 3
    for grant in readers:
        await backend.release(grant)
    writer = granted(await backend.try_acquire(lab.claim()))
    assert writer.fence > max(grant.fence for grant in readers)


@core_case(Capability.FENCING)
async def a_lease_keeps_its_own_fence_after_the_loss(lab: Lab) -> None:
    client = lab.client()
    lease = await client.lock("x", renew=False).acquire()
    mine = lease.fence
    await lab.pass_time(lab.ttl * 2.2)
    other = await lab.client().lock("x").acquire(timeout=lab.ttl * 10)
    assert lease.lost.is_set()
    assert lease.fence == mine
    assert other.fence > mine
    await other.release()
