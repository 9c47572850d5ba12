"""Run the type checkers over the documented idioms: mypy, as the tests do, and basedpyright where it is installed.

Run it with `python tools/check_idioms.py`.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IDIOMS = ROOT / "tests" / "idioms"


def command(checker: str) -> list[str]:
    """What checks the idioms with this checker."""
    files = sorted(str(path) for path in IDIOMS.glob("*.py"))
    if checker == "mypy":
        return [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", *files]
    return [sys.executable, "-m", "basedpyright", "--level", "error", *files]


def main() -> int:
    """0 if every checker accepts the idioms; one that is not installed is named."""
    failed = 0
    for checker in ("mypy", "basedpyright"):
        if find_spec(checker) is None:
            print(f"{checker} is not installed: not checked", file=sys.stderr)
            continue
        print(checker, flush=True)
        failed |= subprocess.run(command(checker), cwd=ROOT, check=False).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
