"""Decisions over the answers of several nodes."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold._core.quorum import (
    WINDOW,
    decided,
    duplicates,
    first_number,
    higher_number,
    majority,
    median,
    same_number,
    sits_out,
    validity_left,
)


@pytest.mark.parametrize("nodes", range(1, 10))
def test_any_two_majorities_share_a_node_and_nothing_smaller_does(nodes: int) -> None:
    everyone = range(nodes)
    assert all(set(one) & set(other) for one in combinations(everyone, majority(nodes)) for other in [everyone])
    for one in combinations(everyone, majority(nodes)):
        assert all(set(one) & set(other) for other in combinations(everyone, majority(nodes)))
    half = majority(nodes) - 1
    assert any(
        not set(one) & set(other) for one in combinations(everyone, half) for other in combinations(everyone, half)
    )


def test_an_even_number_of_nodes_survives_no_more_than_one_node_less() -> None:
    for nodes in (2, 4, 6, 8):
        assert nodes - majority(nodes) == (nodes - 1) - majority(nodes - 1)


@given(nodes=st.integers(1, 9), data=st.data())
def test_it_is_decided_exactly_when_no_further_answer_can_change_it(nodes: int, data: st.DataObject) -> None:
    yes = data.draw(st.integers(0, nodes))
    no = data.draw(st.integers(0, nodes - yes))
    outcomes = {yes + more >= majority(nodes) for more in range(nodes - yes - no + 1)}
    assert decided(yes, no, nodes) is (len(outcomes) == 1)


def test_three_of_five_decide_and_so_do_three_refusals() -> None:
    assert decided(3, 0, 5)
    assert decided(0, 3, 5)
    assert decided(2, 3, 5)
    assert not decided(2, 2, 5)
    assert not decided(0, 0, 1)


def test_two_refusals_of_four_are_enough_because_three_votes_would_be_needed() -> None:
    assert decided(2, 2, 4)
    assert not decided(2, 1, 4)


def test_validity_is_what_the_vote_and_the_drift_left_over() -> None:
    assert validity_left(10, 0) == pytest.approx(10 - 0.105)
    assert validity_left(10, 4) == pytest.approx(6 - 0.105)
    assert validity_left(10, 9.95) < 0


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4), st.lists(st.floats(-1e9, 1e9), max_size=4))
def test_a_minority_of_wild_clocks_cannot_move_the_median_beyond_the_good_ones(
    good: list[float], wild: list[float]
) -> None:
    wild = wild[: len(good) - 1]
    assert min(good) <= median(good + wild) <= max(good)


def test_the_first_number_is_the_median_time_of_the_nodes_and_not_the_callers() -> None:
    day = 86_400.0
    offsets = [1_700_000_000.0, 1_700_000_000.5, 1_700_000_000.0 + day]
    assert first_number(offsets, 100.0) == 1_700_000_100_500_000
    assert first_number(offsets, 100.0) < 2**53


def test_after_refusals_the_number_is_higher_than_all_that_was_seen() -> None:
    assert higher_number(10, []) == 10
    assert higher_number(10, [3, 9]) == 10
    assert higher_number(10, [3, 10]) == 11
    assert higher_number(10, [99, 3]) == 100


def test_votes_for_different_numbers_are_not_added_up() -> None:
    assert same_number([7, 7, 7], 5) == 7
    assert same_number([7, 7, 8, 8, 8], 5) == 8
    assert same_number([7, 7, 8, 8], 5) is None
    assert same_number([], 5) is None


def test_a_node_sits_out_for_the_longest_ttl_and_twice_the_window() -> None:
    assert sits_out(30) == 30 + 2 * WINDOW
    assert sits_out(1, window=2) == 5


def test_one_server_under_two_names_is_found() -> None:
    assert duplicates({"a:1": "x", "b:1": "y", "c:1": "x", "d:1": None, "e:1": None}) == [["a:1", "c:1"]]
    assert duplicates({"a:1": "x", "b:1": "y"}) == []
