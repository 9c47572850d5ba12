"""What is loaded when it is used: names of a package, modules, and the logger of a program that may not use logging."""

from __future__ import annotations

import logging
import sys
from types import ModuleType
from typing import Any

import pytest

from leasehold import _lazy, _log


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made: Any = ModuleType("a_package")
    for home, names in (("a_package.first", {"one": 1, "none": None}), ("a_package.second", {"two": 2})):
        module: Any = ModuleType(home)
        vars(module).update(names)
        monkeypatch.setitem(sys.modules, home, module)
    monkeypatch.setitem(sys.modules, "a_package", made)
    found: ModuleType = made
    return found


def test_a_name_is_found_in_its_own_home_and_kept_in_the_package(package: ModuleType) -> None:
    names = _lazy.LazyNames("a_package", {"a_package.first": ["one", "none"], "a_package.second": ["two"]})
    assert [each in names for each in ("one", "two", "three", 1)] == [True, True, False, False]
    assert not hasattr(package, "two")
    assert [names.find(each) for each in ("one", "none", "two")] == [1, None, 2]
    assert {each: vars(package)[each] for each in ("one", "none", "two")} == {"one": 1, "none": None, "two": 2}
    with pytest.raises(AttributeError, match=r"^module 'a_package' has no attribute 'three'$"):
        names.find("three")


def test_a_lazy_module_looks_a_name_up_once(package: ModuleType) -> None:
    first = _lazy.lazy("a_package.first")
    assert first.one == 1
    vars(sys.modules["a_package.first"])["one"] = 7
    assert first.one == 1
    assert _lazy.lazy("a_package.first").one == 7
    with pytest.raises(AttributeError):
        _ = first.three


class Kept(logging.Handler):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[str, int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append((record.name, record.levelno, record.getMessage()))


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """The logger that is there under our name."""
    found = logging.Logger("leasehold", logging.INFO)
    monkeypatch.setitem(logging.Logger.manager.loggerDict, "leasehold", found)
    return found


def test_a_program_without_handlers_gets_nothing_printed(real: logging.Logger) -> None:
    """Python prints warnings of a logger that has no handler at all."""
    log: Any = _log._LazyLogger()
    log.log(_log.WARNING, "lost %r", "x")
    assert [type(each) for each in real.handlers] == [logging.NullHandler]
    log.log(_log.WARNING, "lost %r", "y")
    assert len(real.handlers) == 1


def test_a_handler_of_the_program_gets_every_record_that_its_level_lets_through(real: logging.Logger) -> None:
    mine = Kept()
    real.addHandler(mine)
    log: Any = _log._LazyLogger()
    for level in (_log.DEBUG, _log.INFO, _log.WARNING, _log.ERROR, _log.CRITICAL):
        log.log(level, "lost %r with fence %d", "x", level)
    log.warning("by its own method: %s", "x")
    assert real.handlers == [mine]
    expected = [("leasehold", level, f"lost 'x' with fence {level}") for level in (20, 30, 40, 50)]
    assert mine.kept == [*expected, ("leasehold", 30, "by its own method: x")]
    assert [log.isEnabledFor(level) for level in (10, 19, 20, 50)] == [False, False, True, True]
    real.setLevel(logging.ERROR)
    assert [log.isEnabledFor(level) for level in (30, 40)] == [False, True], "the program may change it at any time"


def test_while_nobody_has_loaded_logging_there_is_no_record(
    real: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: Any = _log._LazyLogger()
    with monkeypatch.context() as without:
        without.delitem(sys.modules, "logging")
        assert not log.isEnabledFor(_log.CRITICAL)
        log.log(_log.CRITICAL, "lost %r", "x")
        assert "logging" not in sys.modules
    assert real.handlers == []
    assert log.isEnabledFor(_log.CRITICAL)
