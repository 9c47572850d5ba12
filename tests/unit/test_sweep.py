"""The sweep itself: which changes it makes, and that a change reaches functions that are loaded already."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from verification.mutants.sweep.live import Loaded
from verification.mutants.sweep.places import Place, places_of

SOURCE = b'''
"""A module."""
import logging
log = logging.getLogger()
MOST = 3

def larger(one: int, other: int, *, strict: bool = False) -> int:
    """A docstring is no place."""
    log.debug("nor is a line of the log")
    if strict and one == other:
        raise ValueError(f"nor a message with {one + other}")
    try:
        return max(one, min(other, MOST))
    except (TypeError, KeyError):
        return larger(one, other, strict=strict)
    finally:
        log.info("end")
'''


def changes(kind: str) -> set[tuple[str, str]]:
    found = places_of("m.py", SOURCE, frozenset({"strict"}))
    return {(place.old, place.new) for place in found if place.kind == kind}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("comparison", {("one == other", "(one != other)")}),
        ("and/or", {("strict and one == other", "(strict or one == other)")}),
        (
            "part of a condition",
            {("strict and one == other", "(strict)"), ("strict and one == other", "(one == other)")},
        ),
        ("constant", {("3", "4"), ("3", "2"), ("False", "True")}),
        ("raise", {("ValueError", "ZeroDivisionError")}),
        ("except", {("(TypeError, KeyError)", "(KeyError,)"), ("(TypeError, KeyError)", "(TypeError,)")}),
        ("argument", {("larger(one, other, strict=strict)", "(larger(one, other))")}),
        ("arithmetic", set()),
    ],
)
def test_a_place_is_changed_in_each_way_that_could_be_a_bug(kind: str, expected: set[tuple[str, str]]) -> None:
    assert changes(kind) == expected


def test_nothing_that_only_people_read_is_changed() -> None:
    found = places_of("m.py", SOURCE, frozenset())
    assert not [place for place in found if "log" in place.old.partition("(")[0] or "nor" in place.new]


def test_a_change_reaches_functions_and_constants_that_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("leasehold.swept")
    module.__file__ = "/nowhere/swept.py"
    exec(compile(SOURCE, module.__file__, "exec"), vars(module))
    monkeypatch.setitem(sys.modules, "leasehold.swept", module)
    loaded = Loaded("/nowhere/", set())
    imported = module.larger
    assert imported(1, 9) == 3

    def the(new: str, old: str) -> Place:
        (place,) = [one for one in places_of("swept.py", SOURCE, frozenset()) if (one.old, one.new) == (old, new)]
        return place

    assert loaded.change(the("4", "3"), SOURCE)
    assert imported(1, 9) == 4
    assert loaded.change(the("max", "min"), SOURCE)
    assert imported(1, 9) == 9
