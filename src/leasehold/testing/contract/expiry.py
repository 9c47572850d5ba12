"""A grant ends with its ttl on the store's clock, unless it is renewed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing.contract.expect import granted, lost, refused
from leasehold.testing.contract.registry import store_case
from leasehold.values import LossReason

if TYPE_CHECKING:
    from leasehold.testing.contract.lab import Lab


@store_case()
async def an_expired_grant_frees_the_name(lab: Lab) -> None:
    grant = granted(await lab.backend().try_acquire(lab.claim()))
    await lab.pass_time(grant.ttl * 1.1)
    granted(await lab.backend().try_acquire(lab.claim()))


@store_case()
async def a_grant_lasts_for_its_ttl(lab: Lab) -> None:
    granted(await lab.backend().try_acquire(lab.claim()))
    await lab.pass_time(lab.ttl * 0.6)
    refused(await lab.backend().try_acquire(lab.claim()))


@store_case()
async def the_holders_ttl_rules_and_not_the_contenders(lab: Lab) -> None:
    granted(await lab.backend().try_acquire(lab.claim(ttl=lab.ttl * 4)))
    contender = lab.backend()
    refused(await contender.try_acquire(lab.claim(ttl=lab.ttl)))
    await lab.pass_time(lab.ttl * 1.5)
    refused(await contender.try_acquire(lab.claim(ttl=lab.ttl)))


@store_case()
async def a_renewed_grant_outlives_its_first_ttl(lab: Lab) -> None:
    backend = lab.backend()
    grant = granted(await backend.try_acquire(lab.claim()))
    for _ in range(3):
        await lab.pass_time(grant.ttl * 0.6)
        renewed = granted((await backend.renew([grant]))[0])
        assert renewed.fence == grant.fence
        refused(await lab.backend().try_acquire(lab.claim()))


@store_case()
async def an_expired_grant_cannot_be_renewed_once_the_name_is_taken(lab: Lab) -> None:
    backend = lab.backend()
    old = granted(await backend.try_acquire(lab.claim()))
    await lab.pass_time(old.ttl * 1.1)
    new = granted(await lab.backend().try_acquire(lab.claim()))
    assert lost((await backend.renew([old]))[0]).reason in (LossReason.TAKEN, LossReason.SESSION_ENDED)
    granted((await lab.backend().renew([new]))[0])


@store_case()
async def a_released_grant_is_not_revived_by_a_renewal(lab: Lab) -> None:
    backend = lab.backend()
    grant = granted(await backend.try_acquire(lab.claim()))
    await backend.release(grant)
    lost((await backend.renew([grant]))[0])
    granted(await lab.backend().try_acquire(lab.claim()))


@store_case()
async def a_withdrawn_claim_is_not_revived_by_a_renewal(lab: Lab) -> None:
    backend = lab.backend()
    grant = granted(await backend.try_acquire(lab.claim()))
    await backend.withdraw(grant.claim)
    lost((await backend.renew([grant]))[0])


@store_case()
async def renewals_are_answered_each_and_in_order(lab: Lab) -> None:
    backend = lab.backend()
    grants = [granted(await backend.try_acquire(lab.claim(f"n{number}"))) for number in range(5)]
    await backend.release(grants[1])
    await backend.release(grants[3])
    answers = await backend.renew(grants)
    assert [type(answer).__name__ for answer in answers] == ["Grant", "Loss", "Grant", "Loss", "Grant"]
    assert [granted(answers[place]).fence for place in (0, 2, 4)] == [grants[place].fence for place in (0, 2, 4)]


@store_case()
async def nothing_to_renew_is_fine(lab: Lab) -> None:
    assert list(await lab.backend().renew([])) == []
