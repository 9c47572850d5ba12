"""The catalogue of failures is complete, and what it names exists."""

from __future__ import annotations

import ast
import functools
import random
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from leasehold._runtimes.asyncio import AsyncioRuntime
from leasehold._runtimes.threads import ThreadRuntime
from leasehold.testing.contract import CASES
from verification.mutants import MUTANTS

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE: dict[str, dict[str, Any]] = tomllib.loads((ROOT / "docs/reference/catalogue.toml").read_text())

# The numbers are those of the collection of known failures that this library was built against; the gaps are its own.
NUMBERS = {
    "S": set(range(1, 50)) - {35},
    "L": set(range(1, 25)) - {18},
    "R": (set(range(1, 15)) | {20}) - {12},
    "C": {1, 2, 3, 4, 5, 6, 9, 20, 21, 22, 23},
    "I": set(range(1, 16)),
    "X": {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 13, 14, 15, 16},
}
LATER = {"Redis", "PostgreSQL and guards", "etcd and ZooKeeper", "patterns"}
CONTRACT = {f"contract:{case}" for case in CASES}
PLANTED = {f"mutant:{mutant.id}" for mutant in MUTANTS}


@functools.cache
def names_in(path: str) -> frozenset[str]:
    """The functions and classes of a file; those of a missing file are none."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, kinds))


def exists(test: str) -> bool:
    """Whether there is such a contract case, planted bug, test or checker."""
    if test.startswith(("contract:", "mutant:")):
        return test in CONTRACT | PLANTED
    path, _, name = test.partition("::")
    return bool(name) and path.startswith(("tests/", "verification/")) and name in names_in(path)


def faults(entry: dict[str, Any]) -> list[str]:
    """What is wrong with an entry."""
    found = [f"unknown field {field}" for field in entry.keys() - {"case", "stores", "test", "later", "reason"}]
    if not str(entry.get("case", "")).endswith(".") or not entry.get("stores"):
        found.append("says neither what happens, in a sentence, nor where")
    if not (entry.get("test") or entry.get("later") or entry.get("reason")):
        found.append("has no test, nothing that comes later, and no reason")
    if "later" in entry and entry["later"] not in LATER:
        found.append(f"belongs to {entry['later']!r}, which is not planned")
    return found + [f"names {test}, which does not exist" for test in entry.get("test", []) if not exists(test)]


@pytest.mark.parametrize("number", list(CATALOGUE))
def test_an_entry_is_whole_and_names_only_what_exists(number: str) -> None:
    assert faults(CATALOGUE[number]) == []


def test_no_case_is_missing_and_none_is_made_up() -> None:
    wanted = {f"{letter}{number:02}" for letter, numbers in NUMBERS.items() for number in numbers}
    assert set(CATALOGUE) == wanted


def test_what_can_happen_on_every_store_is_tested_now_or_has_its_reason() -> None:
    for number, entry in CATALOGUE.items():
        if entry["stores"] == "*" and "test" not in entry:
            assert entry["later"] == "patterns" or "reason" in entry, number


def test_a_wrong_entry_is_found() -> None:
    good = {"case": "Something.", "stores": "*", "test": ["contract:ownership:a_free_name_is_granted"]}
    assert faults(good) == []
    for wrong in (
        {**good, "test": []},
        {**good, "test": ["contract:ownership:no_such_case"]},
        {**good, "test": ["mutant:no-such-bug"]},
        {**good, "test": ["tests/architecture/test_catalogue.py::test_no_such_test"]},
        {**good, "test": ["tests/architecture/no_such_file.py::test_a_wrong_entry_is_found"]},
        {**good, "later": "Some day"},
        {**good, "case": ""},
        {**good, "tests": []},
    ):
        assert len(faults(wrong)) == 1, wrong


def test_tests_that_the_catalogue_names_are_collected() -> None:
    for entry in CATALOGUE.values():
        for test in entry.get("test", []):
            if test.startswith("tests/"):
                assert re.fullmatch(r"tests/[\w/]+/test_\w+\.py::test_\w+", test), test


@pytest.mark.parametrize("runtime", [ThreadRuntime, AsyncioRuntime])
def test_owner_values_are_long_and_never_the_same(runtime: type[ThreadRuntime | AsyncioRuntime]) -> None:
    """128 random bits; and from the system's own source of secrets, which no seed of `random` repeats."""
    owners = set()
    for _ in range(1000):
        random.seed(1)
        owners.add(runtime().owner())
    assert len(owners) == 1000
    assert all(len(set(owner)) > 4 and len(owner) >= 22 for owner in owners)
