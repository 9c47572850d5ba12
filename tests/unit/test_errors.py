from __future__ import annotations

import inspect
import pickle
from typing import Any

import pytest

from leasehold import errors
from leasehold.values import Holder, LossReason, Pause, Skipped

CLASSES = [getattr(errors, name) for name in errors.__all__]

SOMEBODY = Holder("host", 7, "job")
WAITED: dict[str, Any] = {"holder": SOMEBODY, "waited": 1.5, "retry_after": 2.0}
ROW: dict[str, Any] = {"table": "orders", "key": {"id": 7}}
FENCES: dict[str, Any] = {"fence": 33, "highest": 34}
NO_HOLDER: dict[str, Any] = {"holder": None, "waited": 0.0, "retry_after": None}
NO_RESERVATION: dict[str, Any] = {"key": None, "state": None}

FACTS: dict[str, dict[str, Any]] = {
    "AcquireTimeout": WAITED,
    "AlreadyRun": {"skipped": Skipped("nightly", "2026-11-15")},
    "AlreadyRunning": {"skipped": Skipped("nightly", "2026-11-15")},
    "FenceAhead": FENCES,
    "InFlight": {"key": "8e03978e", "retry_after": 2.0, "holder": SOMEBODY},
    "KeyReused": {"key": "8e03978e"},
    "LeaseLost": {"reason": LossReason.EXPIRED, "completed": True},
    "OutOfStock": {"item": "book", "wanted": 3, "available": 2},
    "Paused": {**WAITED, "pause": Pause("moving", "ana")},
    "PreconditionError": {"etag": '"7"'},
    "PreconditionFailed": {"etag": '"7"'},
    "PreconditionMalformed": {"etag": '"7"'},
    "PreconditionRequired": {"etag": '"7"'},
    "ReservationExpired": {"key": "cart:1", "state": "expired"},
    "ReservationRefused": {"key": "cart:1", "state": "cancelled"},
    "RowBusy": {**ROW, "limit": "lock_timeout", "waited": 1.5},
    "StaleFence": FENCES,
    "UniqueConflict": {"table": "orders", "constraint": "by_mail", "columns": ("mail",)},
    "VersionConflict": {**ROW, "expected": 3, "version": 4, "current": {"id": 7, "version": 4}, "gone": True},
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "AcquireTimeout": NO_HOLDER,
    "AlreadyRun": {"skipped": None},
    "AlreadyRunning": {"skipped": None},
    "FenceAhead": {"fence": None, "highest": None},
    "InFlight": {"key": None, "retry_after": 1.0, "holder": None},
    "KeyReused": {"key": None},
    "LeaseLost": {"reason": None, "completed": False},
    "OutOfStock": {"item": None, "wanted": 0, "available": 0},
    "Paused": {**NO_HOLDER, "pause": None},
    "PreconditionError": {"etag": None},
    "PreconditionFailed": {"etag": None},
    "PreconditionMalformed": {"etag": None},
    "PreconditionRequired": {"etag": None},
    "ReservationExpired": NO_RESERVATION,
    "ReservationRefused": NO_RESERVATION,
    "RowBusy": {"table": None, "key": None, "limit": None, "waited": 0.0},
    "StaleFence": {"fence": None, "highest": None},
    "UniqueConflict": {"table": None, "constraint": None, "columns": ()},
    "VersionConflict": {
        "table": None, "key": None, "expected": None, "version": None, "current": None, "gone": False,
    },
}  # fmt: skip


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


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_each_fact_of_an_error_is_kept_under_its_own_name_and_has_its_default(
    kind: type[errors.LeaseholdError],
) -> None:
    given, left_out = FACTS.get(kind.__name__, {}), DEFAULTS.get(kind.__name__, {})
    assert inspect.signature(kind).parameters.keys() == {"message", "name", "backend", *given}
    assert vars(make(kind)) == {"name": "payment:42", "backend": "redis://h", **given}
    assert vars(kind("one clear sentence")) == {"name": None, "backend": None, **left_out}


def test_what_a_web_application_answers_is_in_the_error() -> None:
    kinds = (errors.PreconditionFailed, errors.PreconditionRequired, errors.PreconditionMalformed)
    assert [kind.status for kind in kinds] == [412, 428, 400]
    assert errors.PreconditionError.status == 412


def test_a_closed_client_says_what_to_do() -> None:
    assert "connect()" in str(errors.ClientClosed())
    assert issubclass(errors.ClientClosed, RuntimeError)


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
