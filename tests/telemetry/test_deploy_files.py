"""What is shipped under `deploy/`: rules that promtool accepts and tests, a dashboard of metrics that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from leasehold.cli.exporter import FLEET_METRICS
from leasehold.telemetry.instruments import INSTRUMENTS
from verification.lab.prometheus import promtool

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "leasehold.rules.yml"
TESTS = DEPLOY / "prometheus" / "leasehold.rules.test.yml"
KNOWN = {series for instrument in INSTRUMENTS.values() for series in instrument.series} | set(FLEET_METRICS)
LABELS = {label for instrument in INSTRUMENTS.values() for label in instrument.labels} | {"le", "job", "instance"}


def expressions() -> list[str]:
    dashboard: dict[str, Any] = json.loads((DEPLOY / "grafana" / "leasehold.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [text.replace("$__rate_interval", "5m").replace("$group", ".*") for text in found]


def test_the_rules_are_valid_and_each_alert_has_tests_that_pass() -> None:
    promtool("check", "rules", RULES)
    promtool("check", "config", DEPLOY / "prometheus" / "prometheus.yml")
    assert "SUCCESS" in promtool("test", "rules", TESTS)
    alerts = set(re.findall(r"alert: (\w+)", RULES.read_text()))
    assert alerts == set(re.findall(r"alertname: (\w+)", TESTS.read_text()))
    assert len(alerts) >= 6


@pytest.mark.parametrize("text", [RULES.read_text(), " ".join(expressions())], ids=["rules", "dashboard"])
def test_only_metrics_and_labels_are_used_that_exist(text: str) -> None:
    names = set(re.findall(r"\bleasehold_\w+", text))
    assert names
    assert names <= KNOWN
    for words in re.findall(r"\b(?:by|on) \(([\w, ]+)\)", text):
        assert {word.strip() for word in words.split(",")} <= LABELS


def test_every_instrument_is_on_the_dashboard() -> None:
    text = " ".join(expressions())
    for instrument in INSTRUMENTS.values():
        assert any(re.search(rf"\b{series}\b", text) for series in instrument.series), instrument.name


def test_the_expressions_of_the_dashboard_are_promql(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(expressions())]
    path = tmp_path / "dashboard.yml"
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))  # JSON is YAML
    assert f"{len(rules)} rules found" in promtool("check", "rules", path)


def test_names_and_units_follow_the_rules_of_both_libraries() -> None:
    for instrument in INSTRUMENTS.values():
        assert re.fullmatch(r"leasehold(\.[a-z]+)+", instrument.name)
        assert instrument.prometheus_name.endswith("_seconds") == (instrument.unit == "s")
        assert bool(instrument.buckets) == (instrument.kind == "histogram")
        assert sorted(instrument.buckets) == list(instrument.buckets)
        assert "name" not in instrument.labels
