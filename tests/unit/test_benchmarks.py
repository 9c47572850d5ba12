"""The harness of the benchmarks does what it says. No figure is judged here: a timed test is a test of the machine."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.__main__ import main
from benchmarks.harness import Candidate, Role, Row, Sample, Settings, Table, measure, percentile, timed
from benchmarks.page import TITLES
from benchmarks.page import main as draw_main
from benchmarks.report import as_markdown, as_text, write_json
from benchmarks.scenarios import SCENARIOS


def made_of(name: str, role: Role, values: list[float], log: list[str]) -> Candidate:
    rest = iter(values)

    def sample() -> Sample:
        log.append(name)
        return Sample(next(rest), {"fact": 1.0})

    return Candidate(name, role, sample)


def small_table(tmp_path: Path, log: list[str]) -> Table:
    candidates = [
        made_of("bare", Role.FLOOR, [3, 2, 9], log),
        Candidate("absent", Role.PEER, None, "not installed"),
        made_of("ours", Role.OURS, [6, 8, 4], log),
    ]
    return measure("Small", candidates, Settings(tmp_path, rounds=3))


def test_rounds_are_interleaved(tmp_path: Path) -> None:
    log: list[str] = []
    small_table(tmp_path, log)
    assert log == ["bare", "ours"] * 3


def test_ratio_is_taken_to_the_floor_by_the_best_round(tmp_path: Path) -> None:
    row = small_table(tmp_path, []).row("ours")
    assert (row.best, row.median, row.ratio) == (4, 6, 2)


def test_rates_are_best_when_they_are_high_and_may_be_compared_by_their_medians(tmp_path: Path) -> None:
    candidates = [made_of("bare", Role.FLOOR, [10, 20, 90], []), made_of("ours", Role.OURS, [5, 60, 10], [])]
    table = measure("Rates", candidates, Settings(tmp_path, rounds=3), higher_is_better=True, by="median")
    assert table.row("ours").best == 60
    assert table.row("ours").ratio == 0.5


def test_peer_that_is_not_installed_is_shown(tmp_path: Path) -> None:
    table = small_table(tmp_path, [])
    assert "absent  not installed" in as_text(table)
    assert "| absent | not installed |" in as_markdown(table)


def test_candidates_are_closed_even_if_one_of_them_fails(tmp_path: Path) -> None:
    closed: list[str] = []

    def fail() -> Sample:
        raise RuntimeError("broken")

    candidates = [
        Candidate("one", Role.OURS, fail, close=lambda: closed.append("one")),
        Candidate("two", Role.PEER, fail, close=lambda: closed.append("two")),
    ]
    with pytest.raises(RuntimeError, match="broken"):
        measure("Failing", candidates, Settings(tmp_path))
    assert closed == ["one", "two"]


def test_number_of_iterations_is_found_once_and_kept(tmp_path: Path) -> None:
    counts: list[int] = []
    settings = Settings(tmp_path, rounds=2, quick=True)
    measure("Timed", [timed("loop", Role.OURS, counts.append, settings)], settings)
    assert counts[-1] == counts[-2] >= 1


def test_percentile_of_few_values_is_one_of_them() -> None:
    assert [percentile([3, 1, 2], share) for share in (0.0, 0.5, 0.99)] == [1, 2, 3]


def test_quick_run_writes_a_table_a_json_file_and_a_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results, plots = tmp_path / "results.json", tmp_path / "plots"
    assert main(["P11", "--quick", "--json", str(results), "--svg", str(plots)]) == 0
    shown = capsys.readouterr()
    assert "python -c 'import leasehold'" in shown.out
    assert shown.err == ""  # the progress bar is for terminals
    tables = json.loads(results.read_text())["scenarios"]["p11"]
    assert [table["rows"][0]["role"] for table in tables] == ["floor", "floor"]
    picture = ET.fromstring((plots / "p11.svg").read_text())
    roles = [element.get("class") for element in picture.iter() if element.get("class") in set(Role)]
    legend = {row["role"] for table in tables for row in table["rows"]}
    assert len(roles) == sum(len(table["rows"]) for table in tables) + len(legend)


def test_unknown_scenario_is_refused_with_the_names_of_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["nonsense"])
    said = capsys.readouterr().err
    assert all(name in said for name in SCENARIOS)


def test_the_page_shows_the_last_run_of_each_scenario(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "reference" / "figures.md"
    page.parent.mkdir(parents=True)
    files = [tmp_path / f"{number}.json" for number in (1, 2)]
    for number, file in enumerate(files):
        table = Table("import", "µs", [Row("ours", Role.OURS, 4711.0 + number, 4711.0 + number)])
        write_json(file, f"run {number}", {"p11": [table]})
    assert draw_main([str(page), *map(str, files)]) == 0
    text = page.read_text()
    assert "## Start-up (p11)" in text
    assert "4,712" in text
    assert "4,711" not in text
    assert (tmp_path / "docs" / "plots" / "p11.svg").exists()


@pytest.mark.parametrize("scenario", SCENARIOS.values())
def test_every_scenario_can_be_run(scenario: str) -> None:
    name, _, store = scenario.partition(":")
    module = import_module(name)
    assert callable(module.run)
    assert not store or store == "several" or store in module.SUBJECTS


def test_every_subject_of_a_table_is_a_scenario() -> None:
    for name in ("pair", "distance", "growth"):
        subjects = import_module(f"benchmarks.scenarios.{name}").SUBJECTS
        assert all(f"benchmarks.scenarios.{name}:{store}" in SCENARIOS.values() for store in subjects)


def test_every_scenario_has_its_title_on_the_page() -> None:
    assert set(TITLES) == set(SCENARIOS)


def test_a_build_that_begins_before_the_first_one_has_ended_belongs_to_its_cycle() -> None:
    from benchmarks.caches import BUILD
    from benchmarks.scenarios.stampede import cycles

    assert cycles([]) == 0
    assert cycles([(5.0, 7.0), (6.9, 9.0), (7.0 + BUILD / 2, 8.0), (7.1 + BUILD, 9.0)]) == 2
