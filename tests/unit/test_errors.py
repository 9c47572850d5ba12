from __future__ import annotations

import pickle
from typing import Any

import pytest

from leasehold import errors
from leasehold.values import Holder, LossReason

CLASSES = [getattr(errors, name) for name in errors.__all__]

FACTS: dict[str, dict[str, Any]] = {
    "AcquireTimeout": {"holder": Holder("host", 7, "job"), "waited": 1.5, "retry_after": 2.0},
    "InFlight": {"key": "8e03978e", "retry_after": 2.0},
    "KeyReused": {"key": "8e03978e"},
    "LeaseLost": {"reason": LossReason.EXPIRED, "completed": True},
    "StaleFence": {"fence": 33, "highest": 34},
}


def make(kind: type[errors.LeaseholdError]) -> errors.LeaseholdError:
    return kind("one clear sentence", name="payment:42", backend="redis://h", **FACTS.get(kind.__name__, {}))


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_prints_its_one_sentence(kind: type[errors.LeaseholdError]) -> None:
    assert str(make(kind)) == "one clear sentence"
    assert "Errno" not in str(make(kind))


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_survives_pickling_with_all_its_facts(kind: type[errors.LeaseholdError]) -> None:
    error = make(kind)
    error.add_note("a note")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
    assert copy.name == "payment:42"
    for fact, value in FACTS.get(kind.__name__, {}).items():
        assert getattr(copy, fact) == value


def test_errors_are_what_the_standard_library_calls_them() -> None:
    assert issubclass(errors.AcquireTimeout, TimeoutError)
    assert issubclass(errors.BackendUnavailable, ConnectionError)
    assert issubclass(errors.ConfigurationError, ValueError)


def test_the_tree_in_the_docstring_is_the_tree_in_the_code() -> None:
    assert errors.__doc__ is not None
    depth: list[tuple[int, str]] = []
    for line in errors.__doc__.splitlines():
        word = line.strip().split(" ")[0]
        if word in errors.__all__ and line.startswith("    "):
            depth.append((len(line) - len(line.lstrip()), word))
    assert {word for _, word in depth} == set(errors.__all__)
    for place, (indent, word) in enumerate(depth[1:], start=1):
        parent = next(name for space, name in reversed(depth[:place]) if space < indent)
        assert issubclass(getattr(errors, word), getattr(errors, parent)), f"{word} under {parent}"
