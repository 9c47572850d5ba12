"""`python -m leasehold.testing.contract`: which cases it runs, over which harness and driver, and what it reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leasehold import spi
from leasehold.testing import contract
from leasehold.testing.contract import __main__ as program
from leasehold.testing.contract import pace

if TYPE_CHECKING:
    from leasehold.testing.contract.cases import Case

CAPABILITIES = contract.REQUIRED["redis"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any, str]]:
    """What is run: each case with its harness and the name of its driver; two of them fail."""
    calls: list[tuple[str, Any, str]] = []

    def check(case: Case, harness: Any, driver: Any) -> None:
        calls.append((str(case), harness, driver.name))
        if len(calls) in (2, 3):
            raise AssertionError(f"the promise number {len(calls)} is broken")

    monkeypatch.setattr(program, "check", check)
    return calls


def test_every_case_is_run_on_both_drivers_and_what_failed_is_counted(
    started: list[tuple[str, Any, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["redis://h", "redis", "--ttl", "0.25", "--only", "fences:"]) == 1
    cases = [str(case) for case in contract.CASES if "fences:" in str(case)]
    assert len(cases) > 1
    assert [(case, driver) for case, _, driver in started] == [
        (case, driver) for driver in ("threads", "asyncio") for case in cases
    ]
    harnesses = [harness for _, harness, _ in started]
    assert len(set(map(id, harnesses))) == len(started), "a harness is made anew for each case"
    for harness in harnesses:
        assert isinstance(harness, contract.UrlHarness)
        assert (harness.url_for_children(), harness.capabilities, harness.ttl) == ("redis://h", CAPABILITIES, 0.25)
    printed = capsys.readouterr().out
    assert [line for line in printed.splitlines() if line.startswith("FAILED")] == [
        f"FAILED {driver} {case}" for case, _, driver in started[1:3]
    ]
    assert "the promise number 2 is broken" in printed
    assert printed.endswith(f"\n{len(started) - 2} passed, 2 failed\n")


def test_by_turns_each_case_is_run_on_one_driver(
    started: list[tuple[str, Any, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    started += [("", None, "")] * 3  # those that fail
    assert program.main(["memory", "--turns", "--cases", "store"]) == 0
    assert [(case, driver) for case, _, driver in started[3:]] == [
        (str(case), ("threads", "asyncio")[number % 2]) for number, case in enumerate(contract.STORE_CASES)
    ]
    assert all(isinstance(harness, contract.MemoryHarness) for _, harness, _ in started[3:])
    assert capsys.readouterr().out == f"{len(contract.STORE_CASES)} passed, 0 failed\n"


def test_without_a_row_of_the_table_a_store_may_declare_what_it_likes_and_the_ttl_is_a_second(
    started: list[tuple[str, Any, str]],
) -> None:
    program.main(["redis://h", "--only", "fences:"])
    assert {(harness.capabilities, harness.ttl) for _, harness, _ in started} == {(None, 1.0)}


def test_every_request_of_every_port_is_timed() -> None:
    """A call that is not timed looks like a store that is wrong, on a machine that was only slow."""
    ports = (spi.Backend, spi.Queueing, spi.Inspecting, spi.Operating, spi.Pausing, spi.Recording)
    verbs = {
        verb
        for port in ports
        for verb, member in vars(port).items()
        if not isinstance(member, property) and (not verb.startswith("_"))
    }
    assert set(pace.VERBS) == verbs - {"close"}
