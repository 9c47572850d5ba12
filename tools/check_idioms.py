"""Run the type checkers over the documented idioms, and measure how much of the public interface has a known type.

    python tools/check_idioms.py

mypy --strict and pyright in its strict mode must accept every line of `tests/idioms`, and refuse what is marked there.
basedpyright stands for pyright: it has the same checker, and brings its own node.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IDIOMS = ROOT / "tests" / "idioms"
CHECKERS = {
    "mypy": ["--strict", "--follow-imports=silent", *sorted(str(path) for path in IDIOMS.glob("*.py"))],
    "basedpyright": ["--project", str(IDIOMS), "--level", "error"],
}
ENOUGH = 0.99


def run(checker: str, *arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a checker of this Python's environment, which it looks for in PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return subprocess.run(
        [sys.executable, "-m", checker, *arguments],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def check(checker: str) -> str:
    """What this checker does not accept; empty if it accepts every idiom."""
    done = run(checker, *CHECKERS[checker])
    return "" if done.returncode == 0 else f"{done.stdout}{done.stderr}"


def completeness() -> tuple[float, list[str]]:
    """The part of the public names whose type is known to every checker, and the names whose type is not."""
    with tempfile.TemporaryDirectory() as empty:  # not among the sources, which are no installed package to it
        done = run("basedpyright", "--verifytypes", "leasehold", "--ignoreexternal", "--outputjson", folder=Path(empty))
    report = json.loads(done.stdout)["typeCompleteness"]
    unknown = [symbol["name"] for symbol in report["symbols"] if symbol["isExported"] and not symbol["isTypeKnown"]]
    return report["completenessScore"], unknown


def main() -> int:
    """0 if both accept the idioms, and enough names have a known type."""
    complaints = {checker: check(checker) for checker in CHECKERS}
    for checker, complaint in complaints.items():
        print(f"{checker}: {complaint or 'accepts every idiom'}")
    score, unknown = completeness()
    print(f"{score:.1%} of the public names have a known type", *unknown, sep="\n  ")
    return 1 if any(complaints.values()) or score < ENOUGH else 0


if __name__ == "__main__":
    sys.exit(main())
