"""Runs the contract on every other supported Python that is installed here; nothing has to be installed there.

The tests run on one Python. The contract needs only the standard library, so it runs on the others as they are.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
ROOT = Path(__file__).parents[1]


def works(python: str) -> bool:
    """Whether the command really starts; a version manager's shim may not."""
    return subprocess.run([python, "-c", "import sqlite3"], capture_output=True, check=False).returncode == 0


def run_contract(python: str, *arguments: str) -> bool:
    """Run it and print one line; everything it said if it failed."""
    command = [python, "-m", "leasehold.testing.contract", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    summary = result.stdout.strip().splitlines()[-1] if result.stdout else "no answer"
    print(f"{Path(python).name}: {arguments[0].partition(':')[0]}: {summary}", flush=True)
    if result.returncode != 0:
        print(result.stdout[-4000:], result.stderr[-4000:])
    return result.returncode == 0


def main() -> int:
    """Run and report; 1 if a contract failed."""
    current = f"{sys.version_info.major}.{sys.version_info.minor}"
    failed = False
    for version in SUPPORTED:
        if version == current:
            continue
        python = shutil.which(f"python{version}")
        if python is None or not works(python):
            print(f"python{version}: not installed here")
            continue
        for store in ("memory",):
            command = [python, "-W", "error", "-m", "leasehold.testing.contract", store]
            environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
            result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            failed = failed or result.returncode != 0
            print(
                f"python{version}: {store}: {result.stdout.strip().splitlines()[-1] if result.stdout else 'no answer'}"
            )
            if result.returncode != 0:
                print(result.stdout[-4000:], result.stderr[-4000:])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
