"""A check that cannot fail checks nothing: each is shown something wrong."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from leasehold._core.local_queue import LocalQueue, LocalWaiter
from leasehold._core.tenure import Tenure
from leasehold._patterns.election import AsyncTerm
from leasehold._patterns.term import Term, Timings
from leasehold.spi import Place
from leasehold.values import Claim, Grant, Holder, Loss, LossReason, Mode, Refusal
from verification.simulation import SimRuntime, World
from verification.simulation.accounts import StoreModel, compatible
from verification.simulation.batches import owners_in_use
from verification.simulation.checkers import Beliefs, fence_disorder
from verification.simulation.history import Grants, History
from verification.simulation.idempotency import Results
from verification.simulation.leaders import Leaders
from verification.simulation.network import Link

HOLDER = Holder("host", 1)


def claim(owner: str, mode: Mode = Mode.EXCLUSIVE, capacity: int = 1, min_hold: float = 0.0) -> Claim:
    return Claim("k", owner, 10.0, mode, capacity, min_hold, HOLDER)


def grant(owner: str, fence: int, abandoned: bool = False, **options: object) -> Grant:
    return Grant(claim(owner, **options), fence, 10.0, None, abandoned)  # type: ignore[arg-type]


class Bench:
    """A model that gets its answers by hand."""

    def __init__(self) -> None:
        self.world = World(1)
        self.history = History(self.world)
        self.process = self.world.process("p")
        self.link = Link(self.process, 0.5)
        self.model = StoreModel(self.world, self.history)
        self.beliefs = Beliefs(self.world, self.history, self.model)

    def granted(self, answer: Grant, verb: str = "try_acquire") -> Bench:
        self.tell(verb, answer.claim, answer)
        return self

    def tell(self, verb: str, subject: object, answer: object) -> None:
        self.model.applied(self.link, verb, subject, answer, self.world.now)

    def believe(self, answer: Grant) -> Tenure:
        tenure = Tenure("k", answer, self.process.clock(), renew=True, max_hold=None)
        self.beliefs.admitted(self.link, tenure)
        self.beliefs.look()
        return tenure

    @property
    def violated(self) -> list[str]:
        return [violation.check for violation in self.history.violations]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_good_answers_violate_nothing(bench: Bench) -> None:
    first = grant("a", 1)
    bench.granted(first).granted(first)
    bench.tell("try_acquire", claim("b"), Refusal("k"))
    bench.tell("renew", (first,), [first])
    bench.tell("release", first, True)
    bench.granted(grant("b", 2))
    assert bench.violated == []


def test_two_owners_in_the_store_are_seen(bench: Bench) -> None:
    bench.granted(grant("a", 1)).granted(grant("b", 2))
    assert bench.violated == ["two owners in the store"]


def test_an_owner_whose_time_is_over_is_not_counted(bench: Bench) -> None:
    bench.granted(grant("a", 1))
    bench.world.now = 10.0
    bench.granted(grant("b", 2, abandoned=True))
    assert bench.violated == []


def test_a_successor_that_is_not_told_of_an_abandoned_lock_is_seen(bench: Bench) -> None:
    bench.granted(grant("a", 1))
    bench.world.now = 10.0
    bench.granted(grant("b", 2, abandoned=False))
    assert bench.violated == ["wrong about whether the last holder released"]


def test_a_fence_that_does_not_rise_is_seen(bench: Bench) -> None:
    first = grant("a", 5)
    bench.granted(first)
    bench.tell("release", first, True)
    bench.granted(grant("b", 5))
    assert bench.violated == ["fence did not rise in the store"]


def test_two_fences_for_one_claim_are_seen(bench: Bench) -> None:
    bench.granted(grant("a", 1)).granted(grant("a", 2))
    assert bench.violated == ["one claim, two fences"]


def test_a_renewal_that_revives_is_seen(bench: Bench) -> None:
    first = grant("a", 1)
    bench.granted(first)
    bench.tell("release", first, True)
    bench.tell("renew", (first,), [first])
    assert bench.violated == ["a renewal revived a dead grant"]


def test_a_live_grant_that_is_called_lost_is_seen(bench: Bench) -> None:
    first = grant("a", 1)
    bench.granted(first)
    bench.tell("renew", (first,), [Loss(LossReason.TAKEN)])
    assert bench.violated == ["a live grant was called lost"]


def test_a_withdrawn_claim_that_is_granted_is_seen(bench: Bench) -> None:
    bench.tell("withdraw", claim("a"), None)
    bench.granted(grant("a", 1))
    assert bench.violated == ["a withdrawn claim was granted"]


def test_a_waiter_that_is_overtaken_is_seen(bench: Bench) -> None:
    first = grant("a", 1)
    bench.granted(first)
    bench.tell("join", claim("b"), Place(claim("b"), SimRuntime(bench.process).signal(), 1.0, 0))
    bench.tell("release", first, True)
    bench.granted(grant("c", 2))
    assert bench.violated == ["two owners in the store"]


def test_a_waiter_for_a_free_lock_and_a_refused_free_lock_are_seen(bench: Bench) -> None:
    bench.tell("try_acquire", claim("a"), Refusal("k"))
    bench.tell("join", claim("b"), Place(claim("b"), SimRuntime(bench.process).signal(), 1.0, 0))
    assert bench.violated == ["refused a free lock", "waits for a free lock"]


def test_a_live_waiter_that_loses_its_place_is_seen(bench: Bench) -> None:
    bench.world.now = 100.0
    bench.tell("turn", claim("a"), Refusal("k"))
    assert bench.violated == ["a live waiter lost its place"]


def test_a_min_hold_that_is_not_kept_is_seen(bench: Bench) -> None:
    first = grant("a", 1, min_hold=5.0)
    bench.granted(first)
    bench.tell("release", first, True)
    bench.granted(grant("b", 2))
    assert bench.violated == ["two owners in the store"]


def test_a_renewal_long_after_the_release_is_seen(bench: Bench) -> None:
    first = grant("a", 1)
    bench.model.released["a", 1] = 0.0
    bench.world.now = 1.0
    bench.model.sent(bench.process, "renew", (first,))
    assert bench.violated == ["renewal outlives release"]


def test_a_belief_without_a_grant_in_the_store_is_seen(bench: Bench) -> None:
    tenure = bench.believe(grant("a", 1))
    assert bench.violated == ["believes in a grant the store does not have"]
    assert tenure.grant.fence == 1


def test_two_believers_are_seen(bench: Bench) -> None:
    keep = [bench.granted(each).believe(each) for each in (grant("a", 1), grant("b", 2))]
    assert "two holders believe" in bench.violated
    assert len(keep) == 2


def test_a_belief_that_outlives_the_grant_is_seen(bench: Bench) -> None:
    first = grant("a", 1)
    tenure = bench.granted(first).believe(first)
    tenure.deadline += 5.0
    bench.world.now = 10.5
    bench.beliefs.look()
    assert bench.violated == ["believes in a grant the store does not have"]


def test_a_lease_that_comes_back_after_its_deadline_is_seen(bench: Bench) -> None:
    first = grant("a", 1)
    tenure = bench.granted(first).believe(first)
    bench.world.now = 9.95
    bench.beliefs.look()
    assert bench.violated == []
    bench.tell("renew", (first,), [first])
    tenure.deadline += 9.0
    bench.beliefs.look()
    assert bench.violated == ["a lease that was over came back"]


def test_a_belief_beyond_max_hold_is_seen(bench: Bench) -> None:
    first = grant("a", 1)
    tenure = bench.granted(first).believe(first)
    bench.beliefs.limit("k", tenure.grant.fence, 2.0)
    bench.world.now = 2.5
    bench.beliefs.look()
    assert bench.violated == ["believed beyond max_hold"]


def test_a_fence_that_changes_is_seen(bench: Bench) -> None:
    first = grant("a", 1)
    tenure = bench.granted(first).believe(first)
    tenure.grant = replace(first, fence=2)
    bench.beliefs.look()
    assert "a fence changed" in bench.violated


def test_a_loss_that_is_not_told_in_time_is_seen(bench: Bench) -> None:
    first = grant("a", 1)
    tenure = bench.granted(first).believe(first)
    for moment in (9.95, 10.5, 12.0):
        bench.world.now = moment
        bench.beliefs.look()
    assert bench.violated == ["loss not announced in time"]
    assert tenure.loss is None


def test_a_loss_that_is_told_twice_is_seen(bench: Bench) -> None:
    for _ in range(2):
        bench.beliefs.lost(bench.link, "k", 1, LossReason.TAKEN)
    assert bench.violated == ["loss announced twice"]


def test_a_loss_without_need_is_seen(bench: Bench) -> None:
    first = grant("a", 1)
    tenure = bench.granted(first).believe(first)
    bench.world.now = 9.95
    bench.beliefs.lost(bench.link, "k", tenure.grant.fence, LossReason.EXPIRED)
    assert bench.violated == ["lost without need"]


def test_a_loss_after_trouble_is_nobodys_fault(bench: Bench) -> None:
    first = grant("a", 1)
    tenure = bench.granted(first).believe(first)
    bench.world.now = 9.0
    bench.link.trouble()
    bench.world.now = 9.95
    bench.beliefs.lost(bench.link, "k", tenure.grant.fence, LossReason.UNCONFIRMED)
    assert bench.violated == []


@pytest.mark.parametrize(
    ("claims", "fine"),
    [
        ([claim("a")], True),
        ([claim("a"), claim("b")], False),
        ([claim("a", Mode.SHARED), claim("b", Mode.SHARED)], True),
        ([claim("a", Mode.SHARED), claim("b")], False),
        ([claim("a", Mode.PERMIT, 2), claim("b", Mode.PERMIT, 2)], True),
        ([claim(owner, Mode.PERMIT, 2) for owner in "abc"], False),
    ],
)
def test_who_may_hold_together(claims: list[Claim], fine: bool) -> None:
    assert compatible(claims) is fine


@pytest.mark.parametrize(
    ("grants", "wrong"),
    [
        ([Grants("n", 1, 2, 7), Grants("n", 3, 4, 8)], None),
        ([Grants("n", 1, 4, 8), Grants("n", 2, 3, 7)], None),  # they overlap: any order will do
        ([Grants("n", 1, 2, 7), Grants("m", 3, 4, 7)], None),  # another name
        ([Grants("n", 1, 2, 8), Grants("n", 3, 4, 7)], "n: fence 7 came after 8"),
        ([Grants("n", 1, 4, 7), Grants("n", 2, 3, 7)], "n: fence 7 was given twice"),
        ([Grants("n", 1, 2, 8), Grants("n", 3, 4, 7, excused=True)], None),  # its client had not heard of a break
        ([Grants("n", 1, 2, 7, excused=True), Grants("n", 3, 4, 7)], "n: fence 7 was given twice"),
    ],
)
def test_fences_must_follow_the_order_in_time(grants: list[Grants], wrong: str | None) -> None:
    assert fence_disorder(grants) == wrong


class Chair:
    """An election as the checker sees it."""

    def __init__(self, term: AsyncTerm) -> None:
        self.term = term
        self.is_leader = True


def leading(bench: Bench, answer: Grant) -> Any:
    """A candidate whose term has this grant."""
    opened: Any = SimpleNamespace(runtime=SimRuntime(bench.process))
    timings = Timings(answer.claim.ttl, 6.0, 1.0)
    return Chair(AsyncTerm(opened, Term("k", answer, bench.process.clock(), timings)))


def test_two_leaders_at_one_instant_are_seen(bench: Bench) -> None:
    leaders = Leaders(bench.history, bench.model, 1.0)
    for owner, fence in (("a", 1), ("b", 2)):
        leaders.watch(bench.link, leading(bench, grant(owner, fence)))
        assert bench.violated == []
        leaders.look()
    assert "two leaders" in bench.violated


def test_a_leader_whose_lease_ends_too_soon_is_seen(bench: Bench) -> None:
    leaders, first = Leaders(bench.history, bench.model, 1.0), grant("a", 1)
    bench.granted(first)
    chair = leading(bench, first)
    leaders.watch(bench.link, chair)
    bench.world.now = 5.9
    leaders.look()
    assert bench.violated == []
    bench.world.now = 6.5
    leaders.look()
    assert bench.violated == ["leads with too little time to stop"]
    leaders.forget(chair)
    leaders.look()
    assert len(bench.violated) == 1


def test_one_result_that_is_replayed_is_fine(bench: Bench) -> None:
    results = Results(bench.history)
    results.completed("k", 1)
    results.replayed("k", 1)
    results.replayed("other", 2)
    results.completed("other", 2)  # its writer was told later than its reader
    assert bench.violated == []


def test_two_results_of_one_key_are_seen(bench: Bench) -> None:
    results = Results(bench.history)
    results.completed("k", 1)
    results.completed("k", 2)
    assert bench.violated == ["two results of one key"]


def test_a_result_that_changes_is_seen(bench: Bench) -> None:
    results = Results(bench.history)
    results.replayed("k", 1)
    results.replayed("k", 2)
    assert bench.violated == ["a completed result changed"]


@pytest.mark.parametrize(("traceless", "used"), [(False, {"adopted"}), (True, set())])
def test_a_claim_that_another_call_adopted_is_in_use_while_its_request_is_under_way(
    traceless: bool, used: set[str]
) -> None:
    claim = Claim("x", "adopted", 30.0, Mode.EXCLUSIVE, 1, 0.0, HOLDER)
    queue: Any = LocalQueue(cast("Any", claim))
    call: Any = SimpleNamespace(_claim=claim, _traceless=traceless)
    queue.delegate = LocalWaiter(queue, call, cast("Any", None), "")
    assert queue.place is None
    local, keeper = SimpleNamespace(queues={"x": queue}), SimpleNamespace(tenures=list)
    client: Any = SimpleNamespace(_opened=SimpleNamespace(local=local, keeper=keeper))
    assert owners_in_use(client) == used
