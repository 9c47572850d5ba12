"""Seeds of the simulation on every other store: the shipped protocol over simulated servers, and no check fails."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import pytest

from tests.forms import sized
from verification.simulation import Outcome, simulate
from verification.simulation.campaign import replay_command
from verification.simulation.run import FORGETFUL, STORES

pytestmark = pytest.mark.timeout(
    600
)  # the seeds of a store are seconds of work, on a core that others may want as well

SEEDS = {
    "sqlite": sized(100, 600),
    "mysql": sized(25, 400),
    "nats": sized(50, 400),
    "etcd": sized(45, 400),
    "redlock": sized(40, 300),
    "zookeeper": sized(40, 300),
}
OTHERS = sorted(set(STORES) - {"memory", "redis"})


@functools.cache
def outcomes(store: str) -> tuple[Outcome, ...]:
    return tuple(simulate(seed, store=store) for seed in range(SEEDS[store]))


def told(outcome: Outcome, store: str) -> str:
    found = [f"seed {outcome.seed} violates: {each.check}: {each.detail}" for each in outcome.violations]
    return "\n".join([*outcome.trace, *found, f"replay: {replay_command(outcome.seed, store, 'everything')}"])


@pytest.mark.parametrize("store", OTHERS)
def test_no_seed_violates_a_check(store: str) -> None:
    failed = [told(outcome, store) for outcome in outcomes(store) if outcome.violations]
    assert not failed, failed[0]


@pytest.mark.parametrize("store", OTHERS)
def test_the_runs_contain_grants_losses_and_faults(store: str) -> None:
    assert sum(outcome.grants for outcome in outcomes(store)) > 5 * SEEDS[store]
    assert sum(outcome.losses for outcome in outcomes(store)) > SEEDS[store]
    assert sum(outcome.faults for outcome in outcomes(store)) > 3 * SEEDS[store]
    forgotten = sum(outcome.empty_restarts for outcome in outcomes(store))
    assert (forgotten > 0) == (store in FORGETFUL)


def test_the_same_seed_gives_the_same_trace_in_every_process() -> None:
    here = [simulate(seed, store=store).trace_hash for store in OTHERS for seed in (3, 11)]
    script = (
        "from verification.simulation import simulate\n"
        f"for store in {OTHERS!r}: [print(simulate(seed, store=store).trace_hash) for seed in (3, 11)]"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    there = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert there.stdout.split() == here
