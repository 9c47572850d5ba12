"""At most one owner per name, and a request touches no grant but its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from leasehold.testing.contract.expect import granted, lost, refused
from leasehold.testing.contract.registry import store_case

if TYPE_CHECKING:
    from leasehold.testing.contract.lab import Lab


@store_case()
async def a_free_name_is_granted(lab: Lab) -> None:
    claim = lab.claim()
    grant = granted(await lab.backend().try_acquire(claim))
    assert grant.claim == claim
    assert grant.ttl >= claim.ttl
    assert grant.since is None


@store_case()
async def a_held_name_is_refused_and_the_refusal_names_the_holder(lab: Lab) -> None:
    granted(await lab.backend().try_acquire(lab.claim(label="first")))
    refusal = refused(await lab.backend().try_acquire(lab.claim(label="second")))
    assert refusal.holder is not None
    assert refusal.holder.label == "first"
    assert refusal.retry_after is None or 0 < refusal.retry_after <= 2 * lab.ttl


@store_case()
async def a_released_name_is_free_at_once(lab: Lab) -> None:
    backend = lab.backend()
    grant = granted(await backend.try_acquire(lab.claim()))
    assert await backend.release(grant) is True
    granted(await lab.backend().try_acquire(lab.claim()))


@store_case()
async def the_second_release_finds_nothing(lab: Lab) -> None:
    backend = lab.backend()
    grant = granted(await backend.try_acquire(lab.claim()))
    assert await backend.release(grant) is True
    assert await backend.release(grant) is False


@store_case()
async def a_foreign_release_changes_nothing(lab: Lab) -> None:
    backend = lab.backend()
    grant = granted(await backend.try_acquire(lab.claim()))
    forged = replace(grant, claim=lab.claim())
    assert await lab.backend().release(forged) is False
    refused(await lab.backend().try_acquire(lab.claim()))
    granted((await backend.renew([grant]))[0])


@store_case()
async def a_late_release_does_not_free_the_next_holder(lab: Lab) -> None:
    backend = lab.backend()
    first = granted(await backend.try_acquire(lab.claim()))
    await backend.release(first)
    second = granted(await backend.try_acquire(lab.claim()))
    assert await backend.release(first) is False
    refused(await lab.backend().try_acquire(lab.claim()))
    granted((await backend.renew([second]))[0])


@store_case()
async def another_grant_of_the_same_owner_is_not_touched(lab: Lab) -> None:
    """A late copy of a claim may be granted anew after the release: that is another grant, with another fence."""
    backend, claim = lab.backend(), lab.claim()
    first = granted(await backend.try_acquire(claim))
    await backend.release(first)
    second = granted(await backend.try_acquire(claim))
    assert second.fence > first.fence
    lost((await backend.renew([first]))[0])
    assert await backend.release(first) is False
    assert granted((await backend.renew([second]))[0]).fence == second.fence


@store_case()
async def the_same_claim_asked_twice_gives_the_same_grant(lab: Lab) -> None:
    claim = lab.claim()
    first = granted(await lab.backend().try_acquire(claim))
    again = granted(await lab.backend().try_acquire(claim))
    assert again.fence == first.fence


@store_case()
async def a_repeated_claim_refreshes_its_expiry(lab: Lab) -> None:
    backend, claim = lab.backend(), lab.claim()
    granted(await backend.try_acquire(claim))
    await lab.pass_time(lab.ttl * 0.7)
    again = granted(await backend.try_acquire(claim))
    await lab.pass_time(lab.ttl * 0.7)
    granted((await backend.renew([again]))[0])


@store_case()
async def a_withdrawn_claim_is_gone(lab: Lab) -> None:
    backend, claim = lab.backend(), lab.claim()
    granted(await backend.try_acquire(claim))
    await backend.withdraw(claim)
    granted(await lab.backend().try_acquire(lab.claim()))


@store_case()
async def a_request_that_arrives_after_its_withdrawal_is_refused(lab: Lab) -> None:
    backend, claim = lab.backend(), lab.claim()
    await backend.withdraw(claim)
    refused(await backend.try_acquire(claim))
    granted(await lab.backend().try_acquire(lab.claim()))


@store_case()
async def a_claim_withdrawn_without_doubt_leaves_nothing_and_may_be_asked_again(lab: Lab) -> None:
    """Every request was answered, so none has to be refused later: the claim is as fresh as it was."""
    backend, claim = lab.backend(), lab.claim()
    first = granted(await backend.try_acquire(claim))
    await backend.withdraw(claim, doubt=False)
    assert granted(await backend.try_acquire(claim)).fence > first.fence
    await backend.withdraw(claim, doubt=False)
    other = granted(await lab.backend().try_acquire(lab.claim()))
    refused(await backend.try_acquire(claim))
    await backend.withdraw(claim, doubt=False)
    assert await lab.backend().release(other) is True
    assert granted(await backend.try_acquire(claim)).fence > first.fence
    await backend.withdraw(claim)
    refused(await backend.try_acquire(claim))


@store_case()
async def a_withdrawal_touches_nobody_else(lab: Lab) -> None:
    backend = lab.backend()
    grant = granted(await backend.try_acquire(lab.claim()))
    await lab.backend().withdraw(lab.claim())
    await lab.backend().withdraw(lab.claim(), doubt=False)
    refused(await lab.backend().try_acquire(lab.claim()))
    granted((await backend.renew([grant]))[0])


@store_case()
async def distinct_names_are_independent(lab: Lab) -> None:
    backend = lab.backend()
    for name in ("a", "a/b", "a:b", "A"):
        granted(await backend.try_acquire(lab.claim(name)))
