"""Seeds of the simulation over the simulated Redis server: the shipped scripts, and no check fails."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import pytest

from tests.forms import sized
from verification.simulation import Outcome, simulate
from verification.simulation.__main__ import main

SEEDS = sized(90, 600)
CHUNK = 45


@functools.cache
def outcomes(start: int) -> tuple[Outcome, ...]:
    return tuple(simulate(seed, store="redis") for seed in range(start, start + CHUNK))


def told(outcome: Outcome) -> str:
    found = [f"seed {outcome.seed} violates: {each.check}: {each.detail}" for each in outcome.violations]
    replay = f"replay: python -m verification.simulation --store redis --seed {outcome.seed}"
    return "\n".join([*outcome.trace, *found, replay])


@pytest.mark.parametrize("start", range(0, SEEDS, CHUNK))
def test_no_seed_violates_a_check(start: int) -> None:
    failed = [told(outcome) for outcome in outcomes(start) if outcome.violations]
    assert not failed, failed[0]


def test_the_runs_contain_grants_losses_and_faults() -> None:
    everything = [outcome for start in range(0, SEEDS, CHUNK) for outcome in outcomes(start)]
    assert sum(outcome.grants for outcome in everything) > 5 * SEEDS
    assert sum(outcome.losses for outcome in everything) > SEEDS
    assert sum(outcome.faults for outcome in everything) > 3 * SEEDS


@pytest.mark.timeout(600)  # seconds of work, on a core that others may want as well
def test_a_register_without_a_fence_loses_updates() -> None:
    """The control. Programs that do a bit of everything meet that once in two hundred seeds; these do little else."""
    outcomes = [simulate(seed, store="redis", program="updates") for seed in range(25)]
    assert not any(outcome.violations for outcome in outcomes)
    assert sum(outcome.unfenced_losses for outcome in outcomes) > 0, "nothing dangerous happened: the run is void"


def test_the_same_seed_gives_the_same_trace_in_every_process() -> None:
    script = (
        "from verification.simulation import simulate; [print(simulate(s, store='redis').trace_hash) for s in (3, 17)]"
    )
    here = [simulate(seed, store="redis").trace_hash for seed in (3, 17)]
    assert here == [outcome.trace_hash for outcome in outcomes(0) if outcome.seed in (3, 17)]
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    there = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert there.stdout.split() == here


def test_the_command_replays_a_seed_of_this_store(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--store", "redis", "--seed", "3"]) == 0
    assert simulate(3, store="redis").trace_hash in capsys.readouterr().out
