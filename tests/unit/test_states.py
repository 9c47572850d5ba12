from __future__ import annotations

import itertools

import pytest

from leasehold._core.states import TRANSITIONS, Event, State


def test_the_table_answers_every_pair_that_can_happen() -> None:
    pairs = set(itertools.product(State, Event))
    assert pairs - set(TRANSITIONS) == {(State.HELD, Event.FREED)}  # nothing is freed without a release


def test_a_pair_that_cannot_happen_is_an_error_and_not_a_guess() -> None:
    with pytest.raises(KeyError):
        TRANSITIONS[State.HELD, Event.FREED]


@pytest.mark.parametrize("event", Event)
def test_what_is_over_stays_over(event: Event) -> None:
    assert TRANSITIONS[State.LOST, event] is State.LOST
    assert TRANSITIONS[State.RELEASED, event] is State.RELEASED


def test_only_a_held_lease_is_confirmed() -> None:
    for state in State:
        after = TRANSITIONS[state, Event.CONFIRM]
        assert after is state, "a confirmation never brings a lease back to life"
