"""The unit and manifest of `docs/how-to/leave-in-order.md` are those of the example, can be read, and leave time."""

from __future__ import annotations

import ast
import configparser
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import leasehold
from leasehold._durations import seconds
from tests.waiting import LIMIT

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "leave_in_order"
PAGE = (ROOT / "docs" / "how-to" / "leave-in-order.md").read_text()


def block(language: str) -> str:
    """The one block of the page in this language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


def leaving_time() -> float:
    """How long the example may take to give its locks back."""
    for node in ast.parse((EXAMPLE / "worker.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LEAVING":
            return float(ast.literal_eval(node.value))
    raise AssertionError("the example has no LEAVING")


def read_yaml(text: str) -> Any:
    """As much of YAML as a manifest needs: mappings, lists of mappings, and scalars written as JSON or plain."""
    lines = [
        (len(line) - len(line.lstrip()), line.strip())
        for line in text.splitlines()
        if line.strip() and not line.strip().startswith("#")
    ]
    value, rest = _read_block(lines)
    assert rest == [], f"not indented as what is before it: {rest[0]}"
    return value


def _read_block(lines: list[tuple[int, str]]) -> tuple[Any, list[tuple[int, str]]]:
    depth, first = lines[0]
    if first.startswith("- "):
        items = []
        while lines and lines[0][0] == depth and lines[0][1].startswith("- "):
            item, lines = _read_block([(depth + 2, lines[0][1][2:]), *lines[1:]])
            items.append(item)
        return items, lines
    mapping: dict[str, Any] = {}
    while lines and lines[0][0] == depth:
        match = re.fullmatch(r"([A-Za-z]+):(?: (\S.*))?", lines[0][1])
        assert match, f"neither a key nor an item: {lines[0][1]}"
        key, scalar = match.groups()
        assert key not in mapping, f"{key} is there twice"
        lines = lines[1:]
        if scalar is None:
            assert lines, f"{key} has no value"
            assert lines[0][0] > depth, f"{key} has no value"
            mapping[key], lines = _read_block(lines)
        else:
            mapping[key] = json.loads(scalar) if scalar[0] in '[{"' or scalar.isdigit() else scalar
    return mapping, lines


def test_the_page_shows_the_files_of_the_example() -> None:
    assert block("ini") == (EXAMPLE / "worker.service").read_text()
    assert block("yaml") == (EXAMPLE / "deployment.yaml").read_text()


def test_the_unit_stops_only_the_worker_and_gives_it_time() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string((EXAMPLE / "worker.service").read_text())
    assert unit.sections() == ["Unit", "Service", "Install"]
    service = unit["Service"]
    assert service["KillMode"] == "mixed"
    assert hasattr(signal, service["KillSignal"])
    assert seconds(service["TimeoutStopSec"], "TimeoutStopSec") > leaving_time()


def test_the_manifest_gives_time_and_starts_the_worker_without_a_shell() -> None:
    manifest = read_yaml((EXAMPLE / "deployment.yaml").read_text())
    spec = manifest["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    pause = float(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert spec["terminationGracePeriodSeconds"] > pause + leaving_time()
    assert container["command"][0] == "python3"
    assert manifest["spec"]["selector"]["matchLabels"] == manifest["spec"]["template"]["metadata"]["labels"]


def test_the_worker_of_the_example_hands_over_when_it_is_told_to_end(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    worker = subprocess.Popen(
        [sys.executable, str(EXAMPLE / "worker.py"), "mailbox-1", "mailbox-2"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "LEASEHOLD_URL": url, "PYTHONPATH": str(Path(leasehold.__file__).parents[1])},
    )
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline().startswith("serving mailbox-1 with fence")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(LIMIT) == -signal.SIGTERM
    finally:
        worker.kill()
        worker.communicate()
    with leasehold.connect(url) as client:
        assert [state.name for state in client.locks()] == []
