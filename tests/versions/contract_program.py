"""`python -m leasehold.testing.contract` under another Python, on the sources of this checkout."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def passes(python: str, *words: str) -> None:
    """Run it to its end; everything it said is shown if a case failed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [python, "-m", "leasehold.testing.contract", *words]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    summary = finished.stdout.strip().splitlines()[-1:]
    assert finished.returncode == 0, f"{python}: {summary}\n{finished.stdout[-4000:]}{finished.stderr[-4000:]}"
    assert "0 failed" in summary[0]
