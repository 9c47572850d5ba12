"""The MariaDB scenarios run, in their quick form and with a real server. No figure is judged here."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.__main__ import main
from benchmarks.mysql_locks import DLOCK, MARIADB

MARIADB_SCENARIOS = ("p16", "p16-waiters", "p12-mariadb", "p14-mariadb")


@pytest.mark.parametrize("name", MARIADB_SCENARIOS)
def test_mariadb_scenario_measures_ours_and_what_is_installed(name: str, tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    assert main([name, "--quick", "--json", str(results), "--svg", str(tmp_path)]) == 0
    tables = json.loads(results.read_text())["scenarios"][name]
    rows = [row for table in tables for row in table["rows"]]
    assert all(any(row["role"] == "ours" and row["values"] for row in table["rows"]) for table in tables)
    assert all(row["values"] for row in rows if row["role"] != "peer" or not MARIADB.why_missing(DLOCK))
    assert ET.fromstring((tmp_path / f"{name}.svg").read_text()) is not None
