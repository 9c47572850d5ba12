"""`doctor`: how far it examines a store, what is slow or wrong, and how its findings are shown."""

from __future__ import annotations

import io
import json
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from leasehold.cli import doctor as doctor_module
from leasehold.cli.main import main
from leasehold.cli.parser import read
from leasehold.errors import BackendUnavailable
from leasehold.findings import Finding, Level

if TYPE_CHECKING:
    from pathlib import Path


class Screen(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


class Patient:
    """A store that is examined."""

    def __init__(self, **options: Any) -> None:
        self.store = "redis://h"
        self.done: list[str] = []
        self._options = options
        self._fence = 0

    def _answer(self, verb: str, answer: Any) -> Any:
        self.done.append(verb)
        found = self._options.get(verb, answer)
        if isinstance(found, Exception):
            raise found
        return found

    def exists(self) -> bool:
        return bool(self._options.get("exists", True))

    def locks(self, prefix: str) -> Any:
        assert prefix == ""
        return self._answer("locks", [1, 2])

    def examine(self) -> Any:
        return self._answer("examine", [Finding("of the store", Level.OK, "fine", "it matters")])

    def lock(self, name: str, *, ttl: float) -> Any:
        assert (name.startswith("leasehold doctor "), ttl) == (True, 5)
        return SimpleNamespace(acquire=self._acquire)

    def _acquire(self, timeout: float) -> Any:
        assert timeout == 5
        self._answer("acquire", None)
        self._fence += self._options.get("rise", 1)
        return SimpleNamespace(fence=self._fence, release=lambda: self._answer("release", None))

    def findings(self, *, tries: bool = False) -> list[tuple[str, str]]:
        client: Any = self
        return [(each.check, each.level.name) for each in doctor_module._examine(client, tries=tries)]


AWAY = BackendUnavailable("no route")
BASICS = [("version", "OK"), ("clock", "OK")]


@pytest.mark.parametrize(
    ("options", "tries", "findings"),
    [
        ({}, False, [("opens", "OK"), ("of the store", "OK")]),
        ({}, True, [("opens", "OK"), ("fences", "OK"), ("latency", "OK"), ("of the store", "OK")]),
        ({"exists": False}, False, [("exists", "WARNING"), ("of the store", "OK")]),
        ({"exists": False, "examine": AWAY}, False, [("exists", "WARNING")]),
        ({"exists": False}, True, [("opens", "OK"), ("fences", "OK"), ("latency", "OK"), ("of the store", "OK")]),
        ({"locks": AWAY}, True, [("opens", "PROBLEM"), ("of the store", "OK")]),
        ({"locks": AWAY, "examine": AWAY}, True, [("opens", "PROBLEM")]),
        ({"examine": AWAY}, False, [("opens", "OK"), ("settings", "WARNING")]),
        ({"acquire": AWAY}, True, [("opens", "OK"), ("acquire and release", "PROBLEM"), ("of the store", "OK")]),
        ({"release": AWAY}, True, [("opens", "OK"), ("acquire and release", "PROBLEM"), ("of the store", "OK")]),
        ({"rise": 0}, True, [("opens", "OK"), ("fences", "PROBLEM"), ("latency", "OK"), ("of the store", "OK")]),
        ({"rise": -1}, True, [("opens", "OK"), ("fences", "PROBLEM"), ("latency", "OK"), ("of the store", "OK")]),
    ],
)
def test_doctor_examines_as_far_as_the_store_lets_it(
    options: dict[str, Any], tries: bool, findings: list[tuple[str, str]]
) -> None:
    patient = Patient(**options)
    assert patient.findings(tries=tries) == [*BASICS, *findings]
    assert patient.done.count("release") in {0, 1, 20}
    if ("latency", "OK") in findings:
        assert patient.done.count("acquire") == patient.done.count("release") == 20
    if not tries:
        assert "acquire" not in patient.done


@pytest.mark.parametrize(
    ("seconds", "level", "found"),
    [
        (0.0012, Level.OK, "1.2 ms"),
        (0.049, Level.OK, "49 ms"),
        (0.05, Level.WARNING, "50 ms"),
        (0.99, Level.WARNING, "9.9e+02 ms"),
        (1.0, Level.PROBLEM, "1e+03 ms"),
    ],
)
def test_a_store_is_slow_or_too_slow_from_some_time_on(seconds: float, level: Level, found: str) -> None:
    finding = doctor_module._latency(seconds)
    assert (finding.level, finding.found.startswith(f"{found} for acquire and release")) == (level, True)
    assert bool(finding.advice) is (level is not Level.OK)


@pytest.mark.parametrize(
    ("pairs", "level", "found"),
    [
        ([0.04] * 20, Level.OK, "40 ms"),
        ([0.06] * 20, Level.WARNING, "60 ms"),
        ([0.04] * 11 + [9.0] * 9, Level.OK, "40 ms"),
        ([0.04] * 9 + [9.0] * 11, Level.PROBLEM, "9e+03 ms"),
    ],
)
def test_each_pair_is_measured_by_itself_and_the_one_in_the_middle_counts(
    pairs: list[float], level: Level, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, left = [100.0], list(pairs)

    class Slow(Patient):
        def _answer(self, verb: str, answer: Any) -> Any:
            now[0] += left.pop(0) if verb == "release" else 0.0
            return super()._answer(verb, answer)

    monkeypatch.setattr(doctor_module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    patient: Any = Slow()
    *_, latency = doctor_module._try_a_lock(patient)
    assert (latency.level, latency.found.split(" for ")[0]) == (level, found)
    assert not left


@pytest.mark.parametrize(
    ("clock", "level"),
    [({"time": lambda: 1_699_999_999.0, "CLOCK_BOOTTIME": 7}, Level.PROBLEM), ({"time": time.time}, Level.WARNING)],
)
def test_a_clock_that_is_wrong_or_stops_during_suspend_is_found(
    clock: dict[str, Any], level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_module, "time", SimpleNamespace(**clock, strftime=time.strftime))
    assert doctor_module._clock().level is level


@pytest.mark.parametrize(
    ("counts", "words", "line"),
    [
        ((3, 0, 0), "", "3 ok (-v shows all; --try tries a lock, too)"),
        ((3, 1, 0), "-v", "1 warning, 3 ok (--try tries a lock, too)"),
        ((3, 2, 1), "--try", "1 problem, 2 warnings, 3 ok (-v shows all)"),
        ((0, 0, 2), "-v --try", "2 problems, 0 ok"),
    ],
)
def test_the_summary_of_doctor_counts_and_says_what_else_there_is(
    counts: tuple[int, int, int], words: str, line: str
) -> None:
    levels = dict(zip((Level.OK, Level.WARNING, Level.PROBLEM), counts, strict=True))
    assert doctor_module._summary(levels, read(["doctor", *words.split()])) == line  # type: ignore[arg-type]


def test_a_finding_says_why_it_matters_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", Screen())
    finding = Finding("rights", Level.PROBLEM, "too wide\x1b", "others may write", "chmod 600")
    assert doctor_module._lines(finding) == [
        "\x1b[31mproblem  \x1b[0mrights: too wide\\x1b", "         why: others may write", "         do:  chmod 600",
    ]  # fmt: skip
    assert len(doctor_module._lines(Finding("x", Level.OK, "fine", "because"))) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [("", ["warning  w: found"]), ("-v", ["ok       o: found", "warning  w: found", "problem  p: found"])],
)
def test_doctor_prints_what_is_wrong_and_its_code_is_that_of_the_worst(
    words: str, said: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [Finding("o", Level.OK, "found", "w"), Finding("w", Level.WARNING, "found", "w")]
    found += [Finding("p", Level.PROBLEM, "found", "w")] if words else []
    monkeypatch.setattr(doctor_module, "_examine", lambda *_, **__: found)
    url = f"sqlite:///{tmp_path}/locks.db"
    assert main(["doctor", url, "--url", "memory://not-this-one", *words.split()]) == (1 if words else 0)
    shown = capsys.readouterr()
    assert [line for line in shown.out.splitlines() if not line.startswith(" ")][:-1] == said
    assert shown.err == f"leasehold: store: {url}\n"
    assert main(["doctor", url, "--json"]) == (1 if words else 0)
    facts = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["check"] for each in facts] == [each.check for each in found]
