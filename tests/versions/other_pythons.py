"""The other supported Pythons that are installed here. Nothing has to be installed there: the contract needs only the
standard library.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

SUPPORTED = ("3.11", "3.12", "3.13", "3.14")


def others() -> dict[str, str]:
    """Version and program of each; this Python is not among them."""
    current = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = {version: _find(version) for version in SUPPORTED if version != current}
    return {version: python for version, python in found.items() if python is not None}


def _find(version: str) -> str | None:
    """A Python of this version that really starts; a version manager's shim on the path may not."""
    managed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions").glob(f"{version}*/bin/python")
    candidates = [shutil.which(f"python{version}"), *sorted(map(str, managed), reverse=True)]
    return next((python for python in candidates if python is not None and _works(python)), None)


def _works(python: str) -> bool:
    """Whether the command starts and has SQLite."""
    return subprocess.run([python, "-c", "import sqlite3"], capture_output=True, check=False).returncode == 0
