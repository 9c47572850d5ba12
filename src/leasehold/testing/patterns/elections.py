"""Elections of one leader: `client.election`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.errors import AcquireTimeout, ConfigurationError, LeaseLost
from leasehold.testing.contract.expect import raises
from leasehold.testing.faults import Faults
from leasehold.testing.patterns.registry import pattern_case
from leasehold.values import Capability, LossReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._patterns.election import AsyncElection, AsyncTerm
    from leasehold.testing.contract.lab import Lab
    from leasehold.values import Loss


class BodyFailed(Exception):
    """An error of the leader's own code."""


def candidate(lab: Lab, faults: Faults | None = None, label: str | None = None, **options: Any) -> AsyncElection:
    """A candidate with a client of its own; half of the ttl is left to stop."""
    timings = {"ttl": 2 * lab.ttl, "renew_deadline": lab.ttl, "retry": lab.ttl / 4}
    return lab.client(faults, label=label).election("leader", **{**timings, **options})


async def _until(lab: Lab, condition: Callable[[], bool]) -> None:
    limit = lab.runtime.now() + 40 * lab.ttl
    while not condition():
        assert lab.runtime.now() < limit, "it did not happen"
        await lab.runtime.sleep(lab.ttl / 50)


@pattern_case(Capability.FENCING)
async def one_leads_at_a_time_and_who_is_refused_learns_who_leads(lab: Lab) -> None:
    first, second = candidate(lab, label="first"), candidate(lab)
    async with first.lead() as term:
        assert (first.is_leader, second.is_leader) == (True, False)
        assert repr(first.term) == repr(term)
        refused = await raises(AcquireTimeout, second.lead(timeout=0).__aenter__())
        assert refused.holder is not None
        assert refused.holder.label == "first"
    assert first.term is None
    async with second.lead() as next_term:
        assert next_term.fence > term.fence
        assert (first.is_leader, second.is_leader) == (False, True)


@pattern_case(Capability.FENCING)
async def who_resigns_is_followed_at_once_by_a_candidate_that_waits(lab: Lab) -> None:
    first, second = (candidate(lab, ttl=20 * lab.ttl, renew_deadline=15 * lab.ttl) for _ in range(2))

    async def follow() -> int:
        async with second.lead() as term:
            return term.fence

    async with first.lead() as term:
        following = lab.spawn(follow())
        await lab.live(lab.ttl / 4)
        assert not following.done
    assert await lab.flowing(following.join()) > term.fence


@pattern_case(Capability.FENCING)
async def who_resigns_while_a_renewal_is_under_way_is_followed_at_once_and_for_good(lab: Lab) -> None:
    faults = Faults()
    first, second = candidate(lab, faults, ttl=20 * lab.ttl, renew_deadline=10 * lab.ttl), candidate(lab)
    async with first.lead() as term:
        faults.drop_next_request("renew")  # it stays on the way
        before = faults.calls.count("renew")
        await lab.flowing(_until(lab, lambda: faults.calls.count("renew") > before))
    async with second.lead(timeout=0) as next_term:
        await faults.deliver_late()
        assert not first.is_leader
        await next_term.renew()
        assert second.is_leader
        assert next_term.fence > term.fence


@pattern_case(Capability.FENCING)
async def a_leader_that_cannot_renew_stops_before_another_can_lead(lab: Lab) -> None:
    faults, may_stop = Faults(), lab.runtime.signal()
    losses: list[Loss] = []
    election, other = candidate(lab, faults, on_lost=losses.append), candidate(lab)

    async def stop_slowly() -> None:
        while not may_stop.is_set():
            await lab.runtime.sleep(lab.ttl / 50)

    async def lead() -> None:
        async with election.lead() as term:
            try:
                await term.lost.wait()
            finally:
                await lab.runtime.shielded(stop_slowly)  # as code does that cannot be interrupted

    leading = lab.spawn(lead())
    await lab.eventually(lambda: election.is_leader, "it is elected")
    await lab.live(lab.ttl * 1.5)  # renewed meanwhile
    assert election.is_leader
    faults.cut()
    await lab.flowing(_until(lab, lambda: not election.is_leader))
    await raises(AcquireTimeout, other.lead(timeout=0).__aenter__())
    assert not leading.done
    faults.heal()
    may_stop.set()
    error = await raises(LeaseLost, lab.flowing(leading.join()))
    assert error.reason in (LossReason.UNCONFIRMED, LossReason.EXPIRED)
    assert [loss.reason for loss in losses] == [error.reason]
    async with other.lead(timeout=0):  # what was kept for its body to stop was given back when it had
        assert other.is_leader


@pattern_case(Capability.FENCING)
async def who_steps_down_does_not_lead_and_is_followed_when_its_body_has_ended(lab: Lab) -> None:
    stopped: list[Loss] = []
    election, other = candidate(lab, on_lost=stopped.append), candidate(lab)
    async with election.lead() as term:
        assert term.step_down()
        assert not term.step_down()
        assert not election.is_leader
        assert term.lost.is_set()
        await raises(AcquireTimeout, other.lead(timeout=0).__aenter__())
    assert [loss.reason for loss in stopped] == [LossReason.RELEASED]
    async with other.lead(timeout=0) as after:
        assert after.fence > term.fence


@pattern_case(Capability.FENCING)
async def a_candidate_for_ever_leads_again_after_its_term_was_broken_and_resigns_when_its_body_fails(lab: Lab) -> None:
    fences: list[int] = []
    election = candidate(lab)

    async def body(term: AsyncTerm) -> None:
        fences.append(term.fence)
        if len(fences) == 2:
            raise BodyFailed
        await term.lost.wait()

    running = lab.spawn(election.run(body))
    await lab.eventually(lambda: len(fences) == 1, "it leads")
    assert await lab.client().break_lock("leader", fence=fences[0], reason="a test", now=True)
    await raises(BodyFailed, lab.flowing(running.join()))
    assert fences[0] < fences[1]
    assert not election.is_leader
    async with candidate(lab).lead(timeout=0):
        pass


@pattern_case(Capability.FENCING)
async def observers_see_each_leader_and_who_is_elected_is_called_back(lab: Lab) -> None:
    elected: list[int] = []
    seen: list[int] = []
    election = candidate(
        lab,
        label="first",
        ttl=80 * lab.ttl,  # it must not be lost on a machine that is slow
        renew_deadline=60 * lab.ttl,
        on_elected=lambda term: elected.append(term.fence),
        on_new_leader=lambda leader: seen.append(leader.fence),
    )
    observation = candidate(lab).observe()
    assert await observation.__anext__() is None
    async with election.lead() as term:
        assert elected == [term.fence]
        leader = await lab.flowing(observation.__anext__())
        assert leader is not None
        assert (leader.fence, leader.holder.label) == (term.fence, "first")
        assert str(term.fence) in str(leader)

        await lab.flowing(_until(lab, lambda: seen == [term.fence]))
    assert await lab.flowing(observation.__anext__()) is None


@pattern_case(Capability.FENCING)
async def timings_in_the_wrong_order_are_refused_before_anything_is_sent(lab: Lab) -> None:
    faults = Faults()
    client = lab.client(faults)
    for timings in (
        {"ttl": 10, "renew_deadline": 10, "retry": 2},
        {"ttl": 15, "renew_deadline": 14.9, "retry": 2},  # within the margin for clocks that drift apart
        {"ttl": 15, "renew_deadline": 2.4, "retry": 2},
        {"ttl": 15, "renew_deadline": 10, "retry": 0},
    ):
        try:
            client.election("leader", **timings)
        except ConfigurationError:
            continue
        raise AssertionError(f"{timings} were accepted")
    assert faults.calls == []
