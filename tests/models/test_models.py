"""The fast part of the searches. `make models` runs all of it, and writes down what it found."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verification.models.__main__ import as_expected, main
from verification.models.ballot import Ballot, CounterOfEachNode
from verification.models.catalogue import GROUPS, INSTANCES, Instance, recorded
from verification.models.exclusion import FLAWS, Exclusion
from verification.models.explorer import Limits, Result, explore
from verification.models.guard import Guard, schedules
from verification.models.hybrid import HybridClock
from verification.models.quarantine import GUARDS, Quarantine

FAST = [instance for instance in INSTANCES if instance.fast]
PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "models.md"


@functools.cache
def searched(name: str) -> Result[Any]:
    """What a search finds; each is made once."""
    instance = next(each for each in INSTANCES if each.id == name)
    return explore(instance.model, instance.limits)


@pytest.mark.parametrize("instance", FAST, ids=lambda instance: instance.id)
def test_a_search_shows_what_it_must_and_what_was_written_down(instance: Instance) -> None:
    result = searched(instance.id)
    assert as_expected(instance, result), (result.violation, *result.trace)
    known = recorded()[instance.id]
    assert (result.states, result.depth) == (known["states"], known["depth"])
    assert len(result.trace) == known.get("steps", 0)


def test_every_instance_is_written_down_and_belongs_to_a_group() -> None:
    assert list(recorded()) == [instance.id for instance in INSTANCES]
    assert {instance.group for instance in INSTANCES} == set(GROUPS)
    for instance in INSTANCES:
        assert ("steps" in recorded()[instance.id]) is not instance.holds, instance.id


def test_every_known_mistake_is_planted_in_an_instance() -> None:
    planted = {instance.model.flaw for instance in INSTANCES if isinstance(instance.model, Exclusion)}
    assert planted == {"", *FLAWS}
    guards = {instance.model.guard for instance in INSTANCES if isinstance(instance.model, Quarantine)}
    assert guards == set(GUARDS)


def test_the_hybrid_clock_is_sound_exactly_when_the_gap_is_longer_than_skew_and_run_ahead() -> None:
    for lead in range(-1, 3):
        for run_ahead in range(3):
            for gap in range(6):
                result = explore(HybridClock(lead=lead, run_ahead=run_ahead, gap=gap))
                assert result.sound is (gap > lead + run_ahead), (lead, run_ahead, gap, result.trace)


@pytest.mark.parametrize(
    ("rule", "wrong"),
    [("none", 4), ("writes", 2), ("reads too", 0), ("two registers", 0)],
    ids=str,
)
def test_of_the_six_orders_of_two_holders_so_many_lose_an_update(rule: str, wrong: int) -> None:
    assert schedules(Guard("ww", rule)) == (6, wrong)


def test_the_way_to_a_violation_is_a_shortest_one_and_can_be_followed() -> None:
    model = CounterOfEachNode(attempts=2)
    result = explore(model)
    state = model.initial()
    for step in result.trace:
        state = dict(model.steps(state))[step]
    assert model.violation(state) == result.violation
    assert len(result.trace) == result.depth == 10


def test_a_search_that_met_a_limit_says_that_it_is_not_complete() -> None:
    result = explore(Ballot(), Limits(states=1000))
    assert not result.complete
    assert not result.sound
    assert result.violation is None
    assert not explore(Ballot(), Limits(seconds=0)).complete


def test_nodes_that_only_change_places_are_one_state() -> None:
    model = Ballot(attempts=2, numbers=2)

    class WithoutSymmetry(Ballot):
        def canonical(self, state):  # type: ignore[no-untyped-def]
            return state

    with_all = explore(WithoutSymmetry(attempts=2, numbers=2))
    reduced = explore(model)
    assert with_all.sound
    assert reduced.sound
    assert reduced.states < with_all.states <= 6 * reduced.states


def test_the_command_tells_when_an_instance_is_not_as_expected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = replace(next(each for each in INSTANCES if each.id == "guard-writes"), holds=True)
    monkeypatch.setattr("verification.models.__main__.INSTANCES", (wrong,))
    assert main(["--trace"]) == 1
    told = capsys.readouterr().out
    assert "not as expected: guard-writes" in told
    assert "4. 34 writes {34}" in told


def test_the_page_shows_the_shortest_counterexamples_as_they_are_found() -> None:
    """Traces on the page are those of the search, word by word."""
    shown = re.findall(r"<!-- trace: ([\w-]+) -->\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(shown) >= 2
    for name, text in shown:
        steps = [re.sub(r"^ *\d+\. ", "", line) for line in text.splitlines()]
        assert steps == list(searched(name).trace), name
