"""The arithmetic of a grant: how long it is trusted and when it is renewed, number by number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold._core import validity
from leasehold._core.quorum import WINDOW, median, waits_for
from leasehold.spi import DRIFT


def test_the_constants_that_the_documents_promise() -> None:
    """Pages on renewals and on clocks give these numbers; whoever changes one must change them too."""
    assert (DRIFT, validity.DRIFT_FIXED) == (0.01, 0.005)
    assert (validity.RENEWALS_PER_TTL, validity.RETRIES_PER_TTL, validity.SHORTEST_RETRY) == (3, 15, 0.02)
    assert WINDOW == 2.0


@pytest.mark.parametrize("ttl", [0.5, 1.0, 10.0, 3600.0])
def test_a_grant_is_trusted_for_its_ttl_less_a_hundredth_and_five_milliseconds(ttl: float) -> None:
    assert validity.margin(ttl) == pytest.approx(ttl * 0.01 + 0.005)
    assert validity.believed_until(100.0, ttl) == pytest.approx(100.0 + ttl - (ttl * 0.01 + 0.005))


@given(since=st.floats(0, 1e6), ttl=st.floats(0.1, 86400))
def test_trust_never_outlasts_the_ttl_counted_from_before_the_request(since: float, ttl: float) -> None:
    assert validity.believed_until(since, ttl) < since + ttl


def test_a_ttl_is_near_within_the_margin_either_way_and_the_margin_itself_counts() -> None:
    asked = 10.0
    allowed = validity.margin(asked)
    assert validity.is_near(asked, asked)
    assert validity.is_near(asked, asked - allowed * 0.99)
    assert validity.is_near(asked, asked + allowed * 0.99)
    assert not validity.is_near(asked, asked - allowed * 1.01)
    assert not validity.is_near(asked, asked + allowed * 1.01)


def test_a_grant_is_renewed_after_a_third_of_its_ttl() -> None:
    assert validity.renewal_due(100.0, 9.0, 9.0) == pytest.approx(103.0)
    assert validity.renewal_due(100.0, 9.0, 6.0) == pytest.approx(103.0)


def test_a_grant_of_less_than_was_wanted_is_renewed_soon_and_never_later_than_any_other() -> None:
    assert validity.renewal_due(100.0, 8.0, 9.0) == 100.0 + validity.SOON
    assert validity.renewal_due(100.0, 0.15, 9.0) == pytest.approx(100.05)


def test_a_renewal_that_failed_is_tried_fifteen_times_in_a_ttl_but_not_more_than_fifty_times_a_second() -> None:
    assert validity.retry_due(100.0, 30.0) == pytest.approx(102.0)
    assert validity.retry_due(100.0, 0.15) == pytest.approx(100.02)


@pytest.mark.parametrize(
    ("usual", "after"),
    [(0.0, 2.0), (0.9, 2.0), (1.5, 3.0), (4.0, 8.0), (6.0, 10.0), (60.0, 10.0)],
)
def test_a_second_renewal_is_sent_after_twice_the_usual_time_between_a_retry_and_a_third_of_the_ttl(
    usual: float, after: float
) -> None:
    assert validity.hedge_after(30.0, usual) == pytest.approx(after)


def test_for_a_very_short_ttl_a_second_renewal_waits_for_the_shortest_retry() -> None:
    assert validity.hedge_after(0.03, 1.0) == pytest.approx(0.02)


# Nodes


@pytest.mark.parametrize(
    ("values", "middle"), [([5.0], 5.0), ([9.0, 1.0], 1.0), ([9.0, 1.0, 5.0], 5.0), ([4.0, 9.0, 1.0, 5.0], 4.0)]
)
def test_the_median_is_a_value_of_a_node_and_the_lower_one_of_two(values: list[float], middle: float) -> None:
    assert median(values) == middle


@pytest.mark.parametrize(
    ("left", "nodes", "wait"),
    [
        ([0.0, 0.0, 0.0], 3, 0.0),
        ([9.0, 0.0, 4.0], 3, 4.0),
        ([9.0, 4.0], 3, 9.0),
        ([9.0], 3, None),
        ([], 1, None),
        ([3.0], 1, 3.0),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 5, 3.0),
    ],
)
def test_a_majority_can_vote_when_the_last_node_that_it_needs_can(
    left: list[float], nodes: int, wait: float | None
) -> None:
    assert waits_for(left, nodes) == wait
