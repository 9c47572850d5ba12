"""Every example, as its readers run it: without leasehold it must go wrong, and with it nothing may."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from examples.stage import LUCK
from tests.sql.desks import fresh_schema

if TYPE_CHECKING:
    from verification.lab.postgres import PostgresServer
    from verification.lab.redis import RedisServer

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
STORIES = sorted(path.parent.name for path in EXAMPLES.glob("*/__main__.py"))
TRIES = 4  # a race that is lost on most days is won on some


def run(name: str, home: Path, *words: str, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """One telling, in a home directory of its own."""
    environment = {**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT / "src")}
    for variable in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR", "LEASEHOLD_URL"):
        environment.pop(variable, None)
    command = [sys.executable, "-m", f"examples.{name}", *words]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=110, check=False)


def told(name: str, home: Path, *words: str) -> str:
    """What an example says when it goes as told."""
    for _ in range(TRIES):
        done = run(name, home, *words)
        if LUCK not in done.stdout:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", STORIES)
def test_an_example_fails_without_leasehold_and_is_cured_by_it(name: str, tmp_path: Path) -> None:
    output = told(name, tmp_path)
    results = re.findall(r"^  ([✓✗]) ", output, re.MULTILINE)
    assert (results[0], results[-1]) == ("✗", "✓")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["reminder_email", "leader"])
def test_an_example_runs_on_redis(name: str, redis_server: RedisServer, tmp_path: Path) -> None:
    redis_server.flush()
    assert f"locks on {redis_server.url}" in told(name, tmp_path, redis_server.url)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["late_writer", "last_ticket"])
def test_an_example_keeps_locks_and_data_in_postgresql(name: str, postgres: PostgresServer, tmp_path: Path) -> None:
    told(name, tmp_path, fresh_schema(postgres))


def test_an_example_notices_that_its_cure_does_not_hold(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    program = tmp_path / "examples" / "migration" / "__main__.py"
    text = program.read_text()
    program.write_text(
        text.replace("if needs_migration(database):\n            migrate(", "if True:\n            migrate(")
    )
    assert program.read_text() != text
    done = run("migration", tmp_path, root=tmp_path)
    assert done.returncode == 1
    assert "The cure did not hold" in done.stdout


def test_a_store_that_cannot_show_an_example_is_refused_in_a_sentence(tmp_path: Path) -> None:
    done = run("payment", tmp_path, "nowhere://localhost")
    assert done.returncode == 1
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_example_is_in_the_list_and_says_how_to_run_it() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert folders == set(re.findall(r"^\| \[`?([a-z_]+)`?\]", listed, re.MULTILINE))
    for name in STORIES:
        text = ast.get_docstring(ast.parse((EXAMPLES / name / "__main__.py").read_text())) or ""
        assert f"python -m examples.{name} " in text
        assert len(text.splitlines()) >= 8
