"""Capability RANGES: a grant out of the queue has fences behind its own that no other grant ever gets.

With them a process passes the lock on between its own threads and tasks, each under a fence of its own, without a
request. The store learns the present fence with the next renewal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from leasehold._record import replace
from leasehold.testing.contract.expect import granted, lost, placed
from leasehold.testing.contract.registry import store_case
from leasehold.values import Capability, LossReason

if TYPE_CHECKING:
    from leasehold.spi import Inspecting, Operating
    from leasehold.testing.contract.lab import Lab
    from leasehold.values import Grant


async def _grant_out_of_the_queue(lab: Lab) -> Grant:
    store = lab.queueing()
    holding = granted(await store.join(lab.claim()))
    place = placed(await store.join(lab.claim(ttl=lab.ttl * 20)))
    await lab.backend().release(holding)
    return granted(await store.turn(place))


def _passed_on(grant: Grant, times: int) -> Grant:
    return replace(grant, fence=grant.fence + times)


async def _fence_shown(lab: Lab, grant: Grant) -> int:
    state = await cast("Inspecting", lab.backend()).inspect(grant.claim.key)
    assert state is not None
    return state.holdings[0].fence


@store_case(Capability.RANGES)
async def a_grant_out_of_the_queue_has_fences_that_no_other_grant_gets(lab: Lab) -> None:
    backend, store = lab.backend(), lab.queueing()
    last = 0
    for _ in range(3):
        grant = await _grant_out_of_the_queue(lab)
        assert grant.spare > 1
        assert grant.fence > last
        last = grant.fence + grant.spare
        await backend.release(grant)
    assert granted(await store.join(lab.claim())).fence > last


@store_case(Capability.RANGES)
async def a_grant_at_once_has_them_only_if_its_claim_wants_them(lab: Lab) -> None:
    backend = lab.backend()
    plain = granted(await backend.try_acquire(lab.claim()))
    assert plain.spare == 0
    await backend.release(plain)
    wanted = granted(await lab.queueing().join(replace(lab.claim(), spare=5)))
    assert wanted.spare >= 5
    assert await backend.release(_passed_on(wanted, 5)) is True
    assert granted(await backend.try_acquire(lab.claim())).fence > wanted.fence + wanted.spare


@store_case(Capability.RANGES)
async def a_grant_is_renewed_and_released_under_any_of_its_fences(lab: Lab) -> None:
    backend = lab.backend()
    grant = await _grant_out_of_the_queue(lab)
    for fence in (0, 1, 1, grant.spare):
        (answer,) = await backend.renew([_passed_on(grant, fence)])
        assert granted(answer).fence == grant.fence + fence
        assert await _fence_shown(lab, grant) == grant.fence + fence
    assert await backend.release(_passed_on(grant, grant.spare)) is True
    assert granted(await lab.backend().try_acquire(lab.claim())).fence > grant.fence + grant.spare


@store_case(Capability.RANGES)
async def a_grant_that_was_never_renewed_is_released_under_its_last_fence(lab: Lab) -> None:
    grant = await _grant_out_of_the_queue(lab)
    assert await lab.backend().release(_passed_on(grant, grant.spare)) is True
    granted(await lab.backend().try_acquire(lab.claim()))


@store_case(Capability.RANGES)
async def a_fence_that_was_passed_on_is_over(lab: Lab) -> None:
    backend = lab.backend()
    grant = await _grant_out_of_the_queue(lab)
    granted((await backend.renew([_passed_on(grant, 2)]))[0])
    assert lost((await backend.renew([grant]))[0]).reason is LossReason.TAKEN
    assert await backend.release(_passed_on(grant, 1)) is False
    granted((await backend.renew([_passed_on(grant, 2)]))[0])


@store_case(Capability.RANGES)
async def a_fence_behind_those_of_a_grant_is_not_its_own(lab: Lab) -> None:
    backend = lab.backend()
    grant = await _grant_out_of_the_queue(lab)
    beyond = _passed_on(grant, grant.spare + 1)
    lost((await backend.renew([beyond]))[0])
    assert await backend.release(beyond) is False
    granted((await backend.renew([grant]))[0])


@store_case(Capability.RANGES)
async def a_grant_that_is_asked_for_again_has_the_same_fences(lab: Lab) -> None:
    store, backend = lab.queueing(), lab.backend()
    holding = granted(await store.join(lab.claim()))
    place = placed(await store.join(lab.claim()))
    await backend.release(holding)
    first = granted(await store.turn(place))
    again = granted(await store.turn(place))
    assert (again.fence, again.spare) == (first.fence, first.spare)


@store_case(Capability.RANGES, Capability.INSPECT)
async def a_lock_is_broken_under_any_fence_of_its_grant(lab: Lab) -> None:
    backend, operator = lab.backend(), cast("Operating", lab.backend())
    for now in (False, True):
        grant = await _grant_out_of_the_queue(lab)
        present = _passed_on(grant, 2)
        granted((await backend.renew([_passed_on(grant, 1)]))[0])
        assert await operator.break_(grant.claim.key, present.fence, "stuck job", now=now)
        for _ in range(2):
            assert lost((await backend.renew([present]))[0]).reason is LossReason.BROKEN
        assert lost(await backend.release(present)).detail == "stuck job"
        await backend.withdraw(grant.claim, doubt=False)
