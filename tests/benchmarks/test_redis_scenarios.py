"""The Redis scenarios run, in their quick form and with a real server. No figure is judged here."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.__main__ import main
from tests.forms import sized

REDIS_SCENARIOS = sized(
    ("p1", "p4", "p12", "linger", "stampede"),
    ("p1", "p2", "p4", "p5", "p6", "p12", "p13", "p14", "linger", "stampede"),
)


@pytest.mark.parametrize("name", REDIS_SCENARIOS)
def test_redis_scenario_measures_ours_and_redis_py(name: str, tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    assert main([name, "--quick", "--json", str(results), "--svg", str(tmp_path)]) == 0
    tables = json.loads(results.read_text())["scenarios"][name]
    measured = {row["name"] for table in tables for row in table["rows"] if row["values"]}
    peers = {row["name"] for table in tables for row in table["rows"] if row["role"] == "peer"}
    assert all(any(row["role"] == "ours" and row["values"] for row in table["rows"]) for table in tables)
    assert {peer for peer in peers if peer.startswith("redis")} <= measured  # redis-py is there with the store itself
    assert ET.fromstring((tmp_path / f"{name}.svg").read_text()) is not None
