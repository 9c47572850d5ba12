"""The hunt for a planted bug: what counts as a catch. The library is a tiny one, and pytest runs as in a real hunt."""

from __future__ import annotations

from pathlib import Path

import pytest

from verification.mutants import Mutant, hunt, runner
from verification.mutants.runner import catching_test, planted

SUMS = "def total(numbers):\n    return sum(numbers)\n"
TESTS = {
    "tests/test_away.py": "def test_the_server_answers():\n    raise OSError('no server here')\n",
    "tests/test_sums.py": (
        "from leasehold.sums import total\n\n"
        "def test_everything_is_counted():\n    assert total([1, 2]) == 3\n\n"
        "def test_nothing_is_counted_as_nothing():\n    assert total([]) == 0\n"
    ),
}


@pytest.fixture(autouse=True)
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library of one function, and its tests; one of them fails whatever the library does."""
    for path, text in {"src/leasehold/__init__.py": "", "src/leasehold/sums.py": SUMS, **TESTS}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    monkeypatch.setattr(runner, "SOURCE", tmp_path / "src")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the plugin of the library is not in this one


def mutant(*tests: str) -> Mutant:
    return Mutant("lost", "the first one is not counted", "sums.py", "sum(numbers)", "sum(numbers[1:])", tests)


def test_a_test_that_fails_on_the_sound_library_as_well_has_not_caught_the_bug() -> None:
    assert hunt(mutant("tests/test_away.py"), 0).caught_by is None


def test_a_test_that_fails_with_the_bug_only_has_caught_it_behind_one_that_always_fails() -> None:
    assert hunt(mutant(*TESTS), 0).caught_by == "test: test_everything_is_counted"


def test_a_fresh_bug_is_caught_by_the_same_rule_and_again_by_the_test_alone() -> None:
    with planted(mutant()) as environment, planted(None) as sound:
        caught = catching_test(tuple(TESTS), environment, sound, again=True)
    assert caught == "tests/test_sums.py::test_everything_is_counted"


def test_a_hang_that_the_sound_library_has_as_well_has_not_caught_the_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "PATIENCE", 0.0)  # every run takes too long
    assert hunt(mutant("tests/test_sums.py"), 0).caught_by is None
