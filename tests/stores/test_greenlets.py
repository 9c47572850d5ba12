"""gevent: on every kind of store a greenlet that waits for a lock, or for an answer, lets the others run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.stores.urls import SERVERS, url_of

PROGRAM = Path(__file__).parent / "greenlets.py"


@pytest.mark.parametrize("kind", ["memory", "sqlite", *SERVERS])
def test_greenlets_go_on_while_one_of_them_waits(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAM), url_of(kind, request, tmp_path)]
    program = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert program.stdout.split("\n") == ["runs", "rises", ""], program.stderr
    assert program.returncode == 0, program.stderr
