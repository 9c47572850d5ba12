"""Cells of the fault lab in their short form; `make lab` is the long one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.forms import sized
from verification.lab.__main__ import _is_done, main
from verification.lab.adapters import PEERS
from verification.lab.faults import FAULTS
from verification.lab.history import Kind, read_history
from verification.lab.matrix import Plan, choose, many_updates, may_overlap, short_plans, why_impossible
from verification.lab.progress import Progress
from verification.lab.report.page import draw_page
from verification.lab.report.results import read_compact, read_folder, write_compact
from verification.lab.running import is_spoiled, run_cell, run_side_by_side, write_result
from verification.lab.stages import STORES
from verification.lab.verdict import BROKEN, FAILED, IMPOSSIBLE, PASSED, VOID, Result, judge

LONG = choose(stores=["sqlite", "redis", "postgresql"], libraries=["leasehold"], seconds=20.0, seed=1)
CELLS = [plan for plan in sized(short_plans(1), LONG) if not why_impossible(plan)]


@pytest.mark.parametrize("plan", CELLS, ids=lambda plan: plan.file_name)
def test_a_cell_keeps_every_promise_and_its_control_does_not(plan: Plan, tmp_path: Path) -> None:
    result = run_cell(plan, tmp_path)
    assert result.verdict == PASSED, json.dumps(result.to_dict()["violations"]) + result.reason
    assert result.counts["lost with fence"] == 0 < result.counts["grants"]
    if plan.fault == "pause clients" and plan.workload == "update":
        assert result.counts["lost without fence"] > 0
        assert result.counts["stale writes refused"] > 0
    kept = read_folder(tmp_path)
    assert [cell.plan for cell in kept] == [plan]
    assert plan.file_name in {path.stem for path in tmp_path.iterdir()}
    assert "<svg" in draw_page(kept, "")


def test_a_run_whose_control_loses_nothing_is_void() -> None:
    """The same history as a passed one, without a lost update of the unfenced counter."""
    plan = Plan("redis", "pause clients")
    events = read_history(Path(__file__).parent / "quiet_history.jsonl")
    assert any(event.kind is Kind.WROTE for event in events)
    result = judge(plan, events, 1.0, 4)
    assert result.verdict == VOID
    assert "has shown nothing" in result.reason


def test_every_cell_is_possible_or_says_why_not() -> None:
    plans = choose(libraries=["leasehold"], workloads=["update"], seconds=1.0, seed=1)
    assert {(plan.store, plan.fault) for plan in plans} == {(store, fault) for store in STORES for fault in FAULTS}
    for plan in plans:
        assert not (why_impossible(plan) and may_overlap(plan)), plan


def test_a_peer_has_a_reason_for_every_store_that_it_does_not_know() -> None:
    for peer in PEERS.values():
        for store in set(STORES) - set(peer.stores):
            assert peer.name in why_impossible(Plan(store, "none", library=peer.name))


def test_a_cell_that_makes_no_sense_is_a_result_with_its_reason(tmp_path: Path) -> None:
    result = run_cell(Plan("memory", "partition"), tmp_path)
    assert (result.verdict, result.reason) == ("impossible", "there is no network")


def test_the_command_of_a_result_repeats_its_plan(tmp_path: Path) -> None:
    plan = Plan("memory", "partition", seconds=4.5, seed=77)
    result = run_cell(plan, tmp_path)
    assert "--store memory --fault 'partition'" in result.command
    assert "--seconds 4.5 --seed 77" in result.command


def test_the_copy_for_the_documents_has_the_same_cells(tmp_path: Path) -> None:
    run_cell(Plan("memory", "partition"), tmp_path)
    cells = read_folder(tmp_path)
    write_compact(cells, tmp_path / "compact")
    assert read_compact(tmp_path / "compact") == cells


def test_a_run_goes_on_where_it_was_interrupted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "--folder", str(tmp_path), "--store", "memory", "--fault", "kill", "--library", "leasehold"]
    assert main([*words, "--workload", "update"]) == 0
    assert "[1/1] memory, kill" in capsys.readouterr().out
    assert main([*words, "--workload", "update", "--fault", "partition"]) == 0
    said = capsys.readouterr().out
    assert "1 of 2 cells have a result" in said
    assert "[1/1] memory, partition" in said
    assert main([*words, "--workload", "update", "--seed", "2"]) == 0
    assert "[1/1] memory, kill" in capsys.readouterr().out, "another seed is another cell"


def test_cells_side_by_side_have_the_results_of_their_plans(tmp_path: Path) -> None:
    plans = [Plan("memory", "none", "lock", seconds=0.3), Plan("memory", "kill"), Plan("memory", "partition")]
    results = run_side_by_side(plans, tmp_path, Progress(len(plans)), 2)
    assert [Plan(**result.plan) for result in results] == plans
    assert [result.verdict for result in results] == [PASSED, IMPOSSIBLE, IMPOSSIBLE]
    assert {cell.plan for cell in read_folder(tmp_path)} == set(plans)


def test_a_cell_that_may_be_spoiled_is_run_again_alone_and_says_what_it_said_before(tmp_path: Path) -> None:
    plan = Plan("memory", "no such fault", seconds=0.1)
    (result,) = run_side_by_side([plan], tmp_path, Progress(1), 2)
    assert result.verdict == BROKEN
    assert result.before.startswith("broken beside another cell")
    assert "ModuleNotFoundError" in json.loads((tmp_path / f"{plan.file_name}.json").read_text())["before"]


@pytest.mark.parametrize(
    ("verdict", "checks", "spoiled"),
    [
        (PASSED, [], False),
        (VOID, [], True),
        (BROKEN, [], True),
        (FAILED, ["late loss", "starvation", "leak"], True),
        (FAILED, ["late loss", "two owners"], False),
        (FAILED, ["lost update"], False),
        (FAILED, ["fence order"], False),
        (FAILED, ["done twice"], False),
        (FAILED, ["not linearizable"], False),
        (FAILED, ["leader overlap"], False),
    ],
)
def test_no_repetition_takes_away_a_broken_promise_of_safety(verdict: str, checks: list[str], *, spoiled: bool) -> None:
    found = [{"check": check, "count": 1, "detail": ""} for check in checks]
    assert is_spoiled(Result({}, "", verdict, violations=found)) == spoiled


@pytest.mark.parametrize(
    ("verdict", "before", "done"),
    [(PASSED, "", True), (BROKEN, "", False), (BROKEN, "broken beside another cell", True), (IMPOSSIBLE, "", True)],
)
def test_a_run_that_goes_on_runs_again_what_was_spoiled_before_it_was_interrupted(
    verdict: str, before: str, tmp_path: Path, *, done: bool
) -> None:
    plan = Plan("memory", "none")
    write_result(tmp_path, plan, Result(plan.to_dict(), "", verdict, before=before))
    assert _is_done(plan, tmp_path) == done
    assert not _is_done(Plan("memory", "clock"), tmp_path)
    assert not _is_done(Plan("memory", "none", seed=2), tmp_path), "another plan with the same file"


def test_many_updates_are_shared_out_among_the_chosen_cells() -> None:
    chosen = choose(stores=["sqlite", "nats"], workloads=["update"], libraries=["leasehold"], seconds=1.0, seed=1)
    plans = many_updates(1001, 1, chosen)
    assert {plan.store for plan in plans} == {"sqlite"}
    assert sum(plan.updates for plan in plans) >= 1001
