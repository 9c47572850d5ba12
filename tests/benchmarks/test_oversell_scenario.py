"""The scenario of the last tickets runs, in its quick form, on SQLite. No time is judged here."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.__main__ import main
from benchmarks.ticket_ways import NAIVE


@pytest.mark.timeout(300)
def test_oversell_measures_each_way(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    assert main(["oversell", "--quick", "--json", str(results), "--svg", str(tmp_path)]) == 0
    tables = json.loads(results.read_text())["scenarios"]["oversell"]
    assert len(tables) == 3
    assert all(row["values"] for table in tables for row in table["rows"])
    for table in tables[::3]:
        assert {row["median"] for row in table["rows"] if row["name"] != NAIVE} == {10.0}, table["title"]
    assert ET.fromstring((tmp_path / "oversell.svg").read_text()) is not None
