"""Every known bug of lock libraries has planted bugs that stand for it, or a reason, and the table of them is drawn."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from verification.mutants import MUTANTS
from verification.mutants.table import PAGE, known, redrawn, results

ROOT = Path(__file__).resolve().parents[2]
CASES = set(tomllib.loads((ROOT / "docs/reference/catalogue.toml").read_text()))
# The numbers are those of the collection that this library was built against; the gaps are its own.
NUMBERS = {f"B{number}" for number in range(1, 71)} - {"B24", "B69"}
KINDS = {"safety", "liveness", "resources", "interface", "security"}


def test_every_known_bug_is_there() -> None:
    assert set(known()) == NUMBERS


def test_each_has_planted_bugs_or_a_reason_that_exists() -> None:
    planted = {mutant.id for mutant in MUTANTS}
    for name, entry in known().items():
        assert entry.keys() <= {"what", "kind", "mutants", "reason"}, name
        assert entry["what"].endswith("."), name
        assert entry["kind"] in KINDS, name
        assert entry.get("mutants") or entry.get("reason"), name
        assert set(entry.get("mutants", ())) <= planted, name
        reason = entry.get("reason", "")
        assert set(re.findall(r"\b[SLRCIX]\d\d\b", reason)) <= CASES, name
        assert all((ROOT / path).exists() for path in re.findall(r"docs/\S+\.md", reason)), name


def test_a_mutant_named_after_a_known_bug_stands_for_one() -> None:
    named = {mutant.id for mutant in MUTANTS if re.match(r"B\d+-", mutant.id)}
    listed = {name for entry in known().values() for name in entry.get("mutants", ())}
    assert named - listed == set()


def test_no_result_is_of_a_mutant_that_is_gone_or_survived() -> None:
    planted = {mutant.id for mutant in MUTANTS}
    assert [name for name in results() if name not in planted] == []
    assert [name for name, result in results().items() if not result["caught_by"]] == []


def test_the_table_is_up_to_date() -> None:
    text = PAGE.read_text()
    assert redrawn(text) == text, "run: make mutant-table"
