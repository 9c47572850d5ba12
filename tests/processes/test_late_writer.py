"""The story that everything here is for, told by the example: a paused holder writes late."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.sql.desks import fresh_schema

if TYPE_CHECKING:
    from verification.lab.postgres import PostgresServer

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "late_writer" / "late_writer.py"


def tell(*words: str, example: Path = EXAMPLE) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, str(example), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=100)


def check(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    plain, _, guarded = done.stdout.partition("\nWITH THE GUARD")
    assert "left: 70, DAMAGED" in plain
    assert "too late" in plain
    assert "REFUSED" not in plain
    assert "left: 20, as it must be" in guarded
    assert guarded.count("REFUSED") == 1


def test_paused_holder_damages_postgresql_without_the_guard_and_not_with_it(postgres: PostgresServer) -> None:
    check(tell(fresh_schema(postgres)))


def test_paused_holder_damages_sqlite_without_the_guard_and_not_with_it() -> None:
    check(tell())


def test_example_notices_when_it_does_not_go_as_told(tmp_path: Path) -> None:
    """Without the guard's work the second telling is damaged like the first."""
    broken = tmp_path / "late_writer.py"
    broken.write_text(EXAMPLE.read_text().replace("if guarded:", "if False:"))
    assert tell(example=broken).returncode == 1
