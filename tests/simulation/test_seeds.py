"""Some hundred seeds of the simulation: no check fails, and the run was dangerous enough to mean something."""

from __future__ import annotations

import functools

import pytest

from tests.forms import sized
from verification.simulation import Outcome, simulate

SEEDS = sized(240, 2_000)  # `make sim` runs twenty thousand
CHUNK = 120


@functools.cache
def outcomes(start: int) -> tuple[Outcome, ...]:
    return tuple(simulate(seed) for seed in range(start, start + CHUNK))


def told(outcome: Outcome) -> str:
    found = [f"seed {outcome.seed} violates: {each.check}: {each.detail}" for each in outcome.violations]
    return "\n".join([*outcome.trace, *found, f"replay: python -m verification.simulation --seed {outcome.seed}"])


@pytest.mark.parametrize("start", range(0, SEEDS, CHUNK))
def test_no_seed_violates_a_check(start: int) -> None:
    failed = [told(outcome) for outcome in outcomes(start) if outcome.violations]
    assert not failed, failed[0]


def test_a_register_without_fencing_loses_updates() -> None:
    """The negative control: where nothing is ever lost, a fence protects from nothing, and the run is void."""
    everything = [outcome for start in range(0, SEEDS, CHUNK) for outcome in outcomes(start)]
    assert sum(outcome.unfenced_losses for outcome in everything) > 0


def test_the_runs_contain_grants_losses_and_faults() -> None:
    some = outcomes(0)
    assert sum(outcome.grants for outcome in some) > 5 * CHUNK
    assert sum(outcome.losses for outcome in some) > CHUNK
    assert sum(outcome.faults for outcome in some) > CHUNK
