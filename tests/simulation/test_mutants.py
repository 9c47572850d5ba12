"""The known bugs can still be put back, and the most important ones are caught at once."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from verification.mutants import MUTANTS, Mutant, apply, hunt
from verification.mutants.runner import PATIENCE, ROOT, SOURCE
from verification.simulation.run import STORES

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def test_each_mutant_can_be_planted_and_hunted() -> None:
    assert [fault for mutant in MUTANTS for fault in _faults(mutant)] == []


def _faults(mutant: Mutant) -> Iterator[str]:
    """Why it could not be planted or hunted: its text has to occur once, and to be a program when it is changed."""
    text = (SOURCE / "leasehold" / mutant.file).read_text()
    if text.count(mutant.old) != 1:
        yield f"{mutant.id}: its text occurs {text.count(mutant.old)} times in {mutant.file}"
    mutated = text.replace(mutant.old, mutant.new)
    try:
        if mutant.file.endswith(".lua"):
            import_module("lupa.lua51").LuaRuntime().compile(mutated)
        elif mutant.file.endswith(".py"):
            compile(mutated, mutant.file, "exec")
    except Exception as error:
        yield f"{mutant.id}: is no program: {error}"
    for test in (word for word in mutant.tests if word.startswith("tests/")):
        if not (ROOT / test.partition("::")[0]).exists():
            yield f"{mutant.id}: is hunted by {test}, which is not there"


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
