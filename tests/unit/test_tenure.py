"""The arithmetic of belief: when a grant may be believed, renewed, and when it is over."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold._core.states import TRANSITIONS, Event, State
from leasehold._core.tenure import MOST_UNDER_WAY, Tenure
from leasehold._core.validity import believed_until, hedge_after, margin, renewal_due, retry_due
from leasehold.values import Claim, Grant, Holder, Loss, LossReason, Mode


def tenure(
    ttl: float = 30.0, *, granted: float | None = None, renew: bool = True, max_hold: float | None = None
) -> Tenure:
    claim = Claim("k", "owner", ttl, Mode.EXCLUSIVE, 1, 0.0, Holder("h", 1))
    return Tenure("k", Grant(claim, 1, granted or ttl), 100.0, renew=renew, max_hold=max_hold)


@given(st.floats(0.1, 1e6), st.floats(0, 1e9))
def test_belief_ends_before_the_stores_ttl(ttl: float, since: float) -> None:
    assert believed_until(since, ttl) < since + ttl
    assert margin(ttl) >= 0.005


def test_renewal_is_due_after_a_third_and_soon_for_a_claim_window() -> None:
    assert renewal_due(100.0, 30.0, 30.0) == 110.0
    assert renewal_due(100.0, 2.0, 30.0) == 100.1
    assert renewal_due(100.0, 0.15, 30.0) == pytest.approx(100.05), "a third of what is left, if that is less"


def test_loss_is_decided_at_the_deadline_and_stays_decided() -> None:
    held = tenure()
    assert held.settle(held.deadline - 0.001) is None
    loss = held.settle(held.deadline)
    assert loss is not None
    assert loss.reason is LossReason.EXPIRED
    held.lose(Loss(LossReason.TAKEN))
    assert held.settle(held.deadline + 1) is loss


def test_a_confirmation_after_the_deadline_does_not_bring_the_lease_back() -> None:
    held = tenure()
    held.renewal_sent(held.deadline - 1, 2.0)
    held.confirm(held.grant, sent=held.deadline - 1, now=held.deadline + 0.5)
    assert held.state is State.LOST
    assert held.loss is not None
    assert held.loss.reason is LossReason.UNCONFIRMED


def test_a_confirmation_counts_from_the_send() -> None:
    held = tenure()
    held.confirm(held.grant, sent=110.0, now=125.0)
    assert held.deadline == believed_until(110.0, 30.0)
    assert held.due == 120.0


def test_a_store_that_cannot_give_the_whole_ttl_is_not_sent_renewals_without_end() -> None:
    held = tenure(granted=24.0)
    assert held.due == 100.1
    held.confirm(Grant(held.grant.claim, 1, 24.0), sent=101.0, now=101.5)
    assert held.deadline == believed_until(101.0, 24.0)
    assert held.due == 109.0


def test_confirmations_out_of_order_do_not_move_the_deadline_back() -> None:
    held = tenure()
    held.confirm(held.grant, sent=115.0, now=116.0)
    later, due = held.deadline, held.due
    held.confirm(held.grant, sent=110.0, now=117.0)
    assert held.deadline == later
    assert held.due == due


def test_max_hold_caps_the_deadline_however_often_it_is_renewed() -> None:
    held = tenure(max_hold=40.0)
    held.confirm(held.grant, sent=120.0, now=121.0)
    assert held.deadline == 140.0
    loss = held.settle(140.0)
    assert loss is not None
    assert loss.reason is LossReason.MAX_HOLD


def test_a_renewal_under_way_is_hedged_as_often_as_a_failed_one_is_tried_again() -> None:
    held = tenure()
    assert not held.wants_renewal(109.0)
    assert held.wants_renewal(110.0)
    now = 110.0
    for _ in range(MOST_UNDER_WAY):
        assert held.next_action() == now
        held.renewal_sent(now, hedge_after(30.0, usual=0.001))
        assert not held.wants_renewal(now + 1.9)
        now += 2.0
    assert not held.wants_renewal(now), "the number under way is limited"
    assert held.next_action() == held.deadline
    held.renewal_ended()
    assert held.wants_renewal(now)


def test_a_store_that_is_only_slow_is_not_sent_more_than_it_can_answer() -> None:
    assert hedge_after(30.0, usual=0.0) == 2.0
    assert hedge_after(30.0, usual=3.0) == 6.0
    assert hedge_after(30.0, usual=8.0) == 10.0
    assert hedge_after(0.1, usual=0.0) == 0.02


@given(st.floats(0.1, 1e5))
def test_while_the_store_is_down_a_lease_is_renewed_about_fifteen_times_per_ttl(ttl: float) -> None:
    pause = retry_due(0.0, ttl)
    assert ttl / 20 <= pause <= max(0.02, ttl / 10)


def test_a_failed_renewal_is_tried_again_soon() -> None:
    held = tenure()
    held.renewal_sent(110.0, 10.0)
    held.renewal_ended()
    assert held.failed("no route", 110.0, 111.0)
    assert 111.0 < held.due <= 113.0
    assert held.wants_renewal(held.due)
    loss = held.settle(held.deadline)
    assert loss is not None
    assert (loss.reason, loss.detail.endswith("(no route)")) == (LossReason.UNCONFIRMED, True)


def test_a_failure_beside_a_renewal_that_is_under_way_does_not_put_the_next_one_off() -> None:
    held = tenure()
    held.renewal_sent(110.0, 2.0)
    held.renewal_sent(112.0, 1.0)
    held.renewal_ended()
    assert held.failed("no route", 110.0, 112.5)
    assert held.due == 113.0


def test_a_failure_of_an_older_request_after_a_confirmation_changes_nothing() -> None:
    held = tenure()
    held.renewal_sent(110.0, 2.0)
    held.renewal_sent(112.0, 2.0)
    held.confirm(held.grant, sent=112.0, now=112.5)
    due = held.due
    assert not held.failed("no answer", 110.0, 113.0)
    assert held.due == due
    assert held.failure is None


def test_a_confirmation_ends_an_outage_so_that_the_next_one_and_a_pause_are_distinguished() -> None:
    held = tenure()
    held.renewal_sent(110.0, 2.0)
    held.renewal_ended()
    held.failed("no route", 110.0, 110.5)
    held.renewal_sent(112.5, 2.0)
    held.renewal_ended()
    held.confirm(held.grant, sent=112.5, now=112.6)
    assert held.failure is None
    loss = held.settle(held.deadline + 1)
    assert loss is not None
    assert loss.reason is LossReason.EXPIRED
    assert "no route" not in loss.detail


@pytest.mark.parametrize("state", [State.RELEASING, State.RELEASED, State.LOST])
def test_only_a_held_lease_is_renewed(state: State) -> None:
    held = tenure()
    held.state = state
    assert not held.wants_renewal(115.0)


def test_a_lease_that_is_not_to_be_renewed_never_wants_it() -> None:
    held = tenure(renew=False)
    assert not held.wants_renewal(held.deadline - 0.001)
    assert held.next_action() == held.deadline


def test_a_release_that_is_overtaken_by_the_ttl_is_no_loss() -> None:
    held = tenure()
    held.state = TRANSITIONS[held.state, Event.RELEASE]
    assert held.settle(held.deadline + 1) is None
    assert held.state is State.RELEASED


@pytest.mark.parametrize(
    ("renew", "max_hold", "looks_at"),
    [(True, None, 110.0), (True, 5.0, 105.0), (True, 60.0, 110.0), (False, None, 129.695), (False, 5.0, 105.0)],
)
def test_the_keeper_looks_when_a_lease_is_due_or_ends_whichever_is_first(
    renew: bool, max_hold: float | None, looks_at: float
) -> None:
    assert tenure(renew=renew, max_hold=max_hold).next_action() == pytest.approx(looks_at)


def test_what_is_over_is_not_renewed_any_more_even_before_anybody_has_looked() -> None:
    held = tenure()
    assert held.wants_renewal(held.deadline - 0.001)
    assert not held.wants_renewal(held.deadline)
    assert held.state is State.HELD


@pytest.mark.parametrize(
    ("granted", "renew", "confirmed", "is_window"),
    [(2.0, True, False, True), (2.0, True, True, False), (2.0, False, False, False), (30.0, True, False, False)],
)
def test_a_window_is_a_short_first_grant_that_a_renewal_may_extend(
    granted: float, renew: bool, confirmed: bool, is_window: bool
) -> None:
    held = tenure(granted=granted, renew=renew)
    if confirmed:
        held.confirm(held.grant, sent=100.5, now=100.6)
    assert held.is_window is is_window


def test_the_ttl_of_a_lease_is_the_most_that_the_store_gave() -> None:
    held = tenure(granted=2.0)
    for ttl, most in ((30.0, 30.0), (12.0, 30.0)):
        held.confirm(Grant(held.grant.claim, 1, ttl), sent=101.0, now=101.0)
        assert held.ttl == most


@pytest.mark.parametrize(
    ("ends_by", "reason"),
    [
        ("nothing", LossReason.EXPIRED),
        ("under way", LossReason.UNCONFIRMED),
        ("failed", LossReason.UNCONFIRMED),
        ("max_hold", LossReason.MAX_HOLD),
    ],
)
def test_why_a_lease_ended_by_the_clock(ends_by: str, reason: LossReason) -> None:
    held = tenure(max_hold=10.0 if ends_by == "max_hold" else None)
    if ends_by != "nothing":
        held.renewal_sent(109.0, 2.0)
    if ends_by == "failed":
        held.renewal_ended()
        held.failed("no route", 109.0, 109.5)
    loss = held.settle(held.deadline)
    assert loss is not None
    assert loss.reason is reason


def test_the_first_reason_of_a_loss_stays_and_a_release_is_no_loss() -> None:
    held, released = tenure(), tenure()
    held.lose(Loss(LossReason.TAKEN))
    held.lose(Loss(LossReason.BROKEN))
    assert held.loss is not None
    assert held.loss.reason is LossReason.TAKEN
    released.state = State.RELEASED
    released.lose(Loss(LossReason.TAKEN))
    assert (released.loss, released.state) == (None, State.RELEASED)


def test_a_new_lease_has_nothing_behind_it() -> None:
    held = tenure()
    assert (held.doubtful, held.perhaps_freed, held.freed, held.failure, held.loss) == (False, False, False, None, None)
    assert (held.handles, held.under_way, held.confirmed) == (1, 0, -math.inf)
