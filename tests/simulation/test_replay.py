"""A seed is a whole run: it always gives the same trace."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from verification.simulation import simulate
from verification.simulation.__main__ import main

SEEDS = (3, 17, 42)


def test_the_same_seed_gives_the_same_trace() -> None:
    assert [simulate(seed) for seed in SEEDS] == [simulate(seed) for seed in SEEDS]


def test_other_seeds_give_other_traces() -> None:
    assert len({simulate(seed).trace_hash for seed in range(20)}) == 20


def test_the_trace_does_not_depend_on_the_process_or_its_hash_seed() -> None:
    script = f"from verification.simulation import simulate; [print(simulate(s).trace_hash) for s in {SEEDS!r}]"
    here = [simulate(seed).trace_hash for seed in SEEDS]
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        there = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        assert there.stdout.split() == here


def test_the_command_replays_a_seed_and_sums_up_many(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3"]) == 0
    assert simulate(3).trace_hash in capsys.readouterr().out
    assert main(["--seeds", "5", "--start", "3"]) == 0
    summary = capsys.readouterr().out
    assert "5 seeds, 0 failed" in summary
    assert "times faster than real time" in summary
