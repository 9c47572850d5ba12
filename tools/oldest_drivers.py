"""Runs the contract with the oldest client libraries that pyproject.toml allows; the tests use the newest.

They are installed into a virtual environment of their own, beside the one of the tests.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

from verification.lab.redis import RedisServer

ROOT = Path(__file__).parents[1]
FOLDER = Path(os.environ.get("VENV", ROOT / ".venv")) / "oldest"


def oldest(extra: str) -> list[str]:
    """The lower bounds of an extra, as exact versions."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return [re.sub(r">=([\w.]+).*", r"==\1", requirement) for requirement in extras[extra]]


def python_with(*requirements: str) -> str:
    """A Python that has exactly these."""
    python = FOLDER / "bin" / "python"
    if not python.exists():
        venv.create(FOLDER, with_pip=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements]
    subprocess.run(install, check=True)
    return str(python)


def main() -> int:
    """Run it; 1 if the contract failed."""
    requirements = oldest("redis")
    python = python_with(*requirements)
    with RedisServer() as server:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        command = [python, "-m", "leasehold.testing.contract", f"redis://127.0.0.1:{server.port}", "--ttl", "0.4"]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    summary = result.stdout.strip().splitlines()[-1] if result.stdout else "no answer"
    print(f"{', '.join(requirements)}: {summary}", flush=True)
    if result.returncode != 0:
        print(result.stdout[-4000:], result.stderr[-4000:])
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())
