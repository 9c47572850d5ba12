"""Runs the contract on every other supported Python that is installed here; nothing has to be installed there.

The tests run on one Python. The contract needs only the standard library, so it runs on the others as they are.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
ROOT = Path(__file__).parents[1]


def find(version: str) -> str | None:
    """A Python of this version that really starts; a version manager's shim on the path may not."""
    managed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions").glob(f"{version}*/bin/python")
    for python in [shutil.which(f"python{version}"), *sorted(map(str, managed), reverse=True)]:
        if python is not None and works(python):
            return python
    return None


def works(python: str) -> bool:
    """Whether the command starts and has SQLite."""
    return subprocess.run([python, "-c", "import sqlite3"], capture_output=True, check=False).returncode == 0


def run_contract(version: str, python: str, *arguments: str) -> bool:
    """Run it and print one line; everything it said if it failed."""
    command = [python, "-m", "leasehold.testing.contract", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    summary = result.stdout.strip().splitlines()[-1] if result.stdout else "no answer"
    print(f"python{version}: {arguments[0].partition(':')[0]}: {summary}", flush=True)
    if result.returncode != 0:
        print(result.stdout[-4000:], result.stderr[-4000:])
    return result.returncode == 0


def main() -> int:
    """Run and report; 1 if a contract failed."""
    current = f"{sys.version_info.major}.{sys.version_info.minor}"
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(4) as pool:  # most of the time they only wait
        runs = []
        for version in SUPPORTED:
            python = None if version == current else find(version)
            if python is not None:
                runs.append(pool.submit(run_contract, version, python, "memory"))
                url = f"sqlite:///{folder}/{version}.db"
                runs.append(pool.submit(run_contract, version, python, url, "--ttl", "0.5"))
            elif version != current:
                print(f"python{version}: not installed here", flush=True)
        results = [run.result() for run in runs]  # all of them, also after a failure
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
