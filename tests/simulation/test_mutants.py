"""The known bugs can still be put back, and the most important ones are caught at once."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from verification.mutants import MUTANTS, Mutant, apply, hunt
from verification.mutants.runner import PATIENCE, ROOT, SOURCE
from verification.simulation.run import STORES

BY_ID = {mutant.id: mutant for mutant in MUTANTS}
MUST_BE_CAUGHT = [
    "B1-unshielded-release",
    "B11-error-ends-renewal",
    "B26-renewed-after-release",
    "S13-unknown-read-as-no",
    "S15-renewal-revives",
    "election-leads-to-the-end",
    "redis-deaf-for-ever",
    "redis-place-not-refreshed",
    "redis-releases-another",
    "redis-withdrawn-waiter-stays",
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.id)
def test_the_text_of_each_mutant_occurs_exactly_once(mutant: Mutant) -> None:
    text = (SOURCE / "leasehold" / mutant.file).read_text()
    assert text.count(mutant.old) == 1
    mutated = text.replace(mutant.old, mutant.new)
    if mutant.file.endswith(".lua"):
        import_module("lupa.lua51").LuaRuntime().compile(mutated)
    elif mutant.file.endswith(".py"):
        compile(mutated, mutant.file, "exec")
    for test in (word for word in mutant.tests if word.startswith("tests/")):
        assert (ROOT / test.partition("::")[0]).exists(), f"{mutant.id} is hunted by {test}, which is not there"


def test_no_two_mutants_have_the_same_name() -> None:
    assert [name for name, count in Counter(mutant.id for mutant in MUTANTS).items() if count > 1] == []


def test_a_mutant_whose_text_has_moved_is_noticed(tmp_path: Path) -> None:
    mutant = MUTANTS[0]
    path = tmp_path / "leasehold" / mutant.file
    path.parent.mkdir(parents=True)
    path.write_text("")
    with pytest.raises(LookupError, match="0 times"):
        apply(mutant, tmp_path)


@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize("name", MUST_BE_CAUGHT)
def test_the_simulation_catches_the_bug(name: str) -> None:
    assert hunt(BY_ID[name], 400).caught_by is not None


@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize("store", STORES)
def test_the_library_as_it_is_survives_the_hunt(store: str) -> None:
    assert hunt(None, 40, store).caught_by is None
