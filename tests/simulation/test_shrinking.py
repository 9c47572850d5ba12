"""A failure is shrunk to the few faults and steps that it needs, and replayed from the command that is printed."""

from __future__ import annotations

import re

import pytest

from verification.simulation import Outcome, simulate
from verification.simulation.__main__ import main
from verification.simulation.resource import Register
from verification.simulation.schedule import Schedule
from verification.simulation.shrink import shrink, smallest


@pytest.fixture
def without_fences(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resource that forgets to look at the fence: acknowledged updates are lost."""
    monkeypatch.setattr(Register, "_raise", lambda *_: None)


def first_failure() -> Outcome:
    return next(outcome for seed in range(300) if (outcome := simulate(seed, program="updates")).violations)


def test_what_is_left_cannot_be_made_smaller() -> None:
    names = [f"f{number}" for number in range(40)]
    needed = {"f3", "f17", "f31"}
    tried: list[int] = []

    def still_fails(kept: object) -> tuple[str, ...] | None:
        assert isinstance(kept, tuple)
        tried.append(len(kept))
        return kept if needed <= set(kept) else None

    assert set(smallest(names, still_fails)) == needed
    assert len(tried) < 100


def test_a_schedule_without_faults_and_steps_does_nothing_and_violates_nothing() -> None:
    outcome = simulate(3, schedule=Schedule(()))
    assert (outcome.schedule, outcome.faults, outcome.updates, outcome.violations) == ((), 0, 0, ())


def test_all_parts_of_a_schedule_are_the_same_run() -> None:
    whole = simulate(3)
    again = simulate(3, schedule=Schedule([part.name for part in whole.schedule]))
    assert again == whole


@pytest.mark.usefixtures("without_fences")
def test_a_failure_is_shrunk_and_can_be_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    found = first_failure()
    shrunk = shrink(found, store="memory", program="updates", seconds=30.0)
    assert {violation.check for violation in shrunk.outcome.violations} == {"a fenced update was lost"}
    assert len(shrunk.kept) <= len(found.schedule) // 3

    start = ["--program", "updates", "--seeds", "1", "--start", str(found.seed), "--shrink", "2"]
    assert main(start) == 1
    printed = capsys.readouterr().out
    assert re.search(r"^commit [0-9a-f]+.*; replay: ", printed, re.MULTILINE)
    (command,) = re.findall(r"^replay: python -m verification\.simulation (.*)$", printed, re.MULTILINE)
    assert main(command.split()) == 1
    assert "a fenced update was lost" in capsys.readouterr().out
