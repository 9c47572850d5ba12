"""What type checkers make of the public interface: the idioms, and how much of it has a type that is known."""

from __future__ import annotations

import ast
from importlib import import_module

import pytest

from tools import check_idioms

USED_WHOLLY = [
    "leasehold",
    "leasehold.sql",
    "leasehold.fencing.asgi",
    "leasehold.fencing.etcd",
    "leasehold.fencing.http",
    "leasehold.fencing.redis",
    "leasehold.fleet",
    "leasehold.findings",
    "leasehold.telemetry",
    "leasehold.testing",
]


@pytest.mark.parametrize("checker", check_idioms.CHECKERS)
def test_a_checker_accepts_the_idioms_and_refuses_what_they_refuse(checker: str) -> None:
    assert check_idioms.check(checker) == ""


def test_nearly_all_public_names_have_a_type_that_every_checker_knows() -> None:
    score, unknown = check_idioms.completeness()
    assert score > check_idioms.ENOUGH, unknown


@pytest.mark.parametrize("module", USED_WHOLLY)
def test_every_public_name_is_in_the_idioms(module: str) -> None:
    assert set(import_module(module).__all__) - words_of_the_idioms() == set()


def words_of_the_idioms() -> set[str]:
    """Every name, attribute and import in them."""
    words: set[str] = set()
    for path in check_idioms.IDIOMS.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                words.add(node.attr)
            elif isinstance(node, ast.Name):
                words.add(node.id)
            elif isinstance(node, ast.alias):
                words.add(node.name)
    return words
