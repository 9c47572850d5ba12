"""The comparison of stores runs, in its quick form on the stores that need no server. No figure is judged here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from benchmarks.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path


def test_the_comparison_of_stores_has_a_table_for_each_column(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    assert main(["stores", "--quick", "--json", str(results), "--svg", str(tmp_path)]) == 0
    tables = json.loads(results.read_text())["scenarios"]["stores"]
    titles = [table["title"].partition(":")[0] for table in tables]
    assert titles == ["Throughput", "Latency", "Hand-over", "Release after a crash", "Cut off", "False safety"]
    measured = {row["name"] for table in tables for row in table["rows"] if row["values"]}
    assert measured == {"memory, one process", "SQLite"}
    (cut_off,) = tables[4]["rows"]
    assert cut_off["missing"] == "there is no network to cut"
    assert ET.fromstring((tmp_path / "stores.svg").read_text()) is not None
