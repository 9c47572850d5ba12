"""The arithmetic of a leader's term: which instant counts, and what the store still keeps after it."""

from __future__ import annotations

import pytest

from leasehold._core.states import State
from leasehold._core.validity import SOON, believed_until
from leasehold._patterns.term import Term, Timings
from leasehold.values import Claim, Grant, Holder, LossReason, Mode

TIMINGS = Timings(ttl=15.0, renew_deadline=10.0, retry=2.0)


def grant(ttl: float = 15.0) -> Grant:
    return Grant(Claim("k", "owner", 15.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1)), 7, ttl)


def term(ttl: float = 15.0) -> Term:
    return Term("k", grant(ttl), 100.0, TIMINGS)


def test_a_term_ends_at_the_renew_deadline_and_its_lease_later() -> None:
    mine = term()
    assert (mine.deadline, mine.due) == (110.0, 102.0)
    assert mine.kept_until == believed_until(100.0, 15.0)
    assert mine.settle(109.99) is None
    loss = mine.settle(110.0)
    assert loss is not None
    assert loss.reason is LossReason.EXPIRED


def test_the_deadline_counts_from_the_send_of_a_renewal_and_not_from_its_answer() -> None:
    mine = term()
    mine.confirm(grant(), 103.0, 108.0)
    assert (mine.deadline, mine.due) == (113.0, 105.0)
    assert mine.kept_until == believed_until(103.0, 15.0)


def test_an_answer_that_is_overtaken_by_a_later_one_changes_nothing() -> None:
    mine = term()
    mine.confirm(grant(), 105.0, 106.0)
    mine.confirm(grant(), 103.0, 107.0)
    assert (mine.deadline, mine.due) == (115.0, 107.0)
    assert mine.kept_until == believed_until(105.0, 15.0)


def test_a_renewal_that_is_confirmed_after_the_deadline_does_not_revive_the_term() -> None:
    mine = term()
    mine.confirm(grant(), 109.0, 110.5)
    assert mine.state is State.LOST
    assert not mine.gives_back_late


def test_what_the_store_gives_less_than_the_renew_deadline_rules() -> None:
    mine = term(4.0)
    assert mine.deadline == believed_until(100.0, 4.0)
    assert mine.due == 100.0 + SOON  # more may come
    mine.confirm(grant(), 101.0, 101.5)
    assert mine.deadline == 111.0


@pytest.mark.parametrize(("since", "ttl", "until"), [(0.0, 15.0, 10.0), (5.0, 60.0, 15.0)])
def test_trust_never_reaches_beyond_the_renew_deadline(since: float, ttl: float, until: float) -> None:
    assert term().trusted_until(since, ttl) == until
