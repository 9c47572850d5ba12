"""The report of one run: a JSON file that appears whole or not at all, and never on the command's stdout."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any

from leasehold.cli.output import SCHEMA

__all__ = ["obstacle", "write_report"]


def obstacle(path: str) -> str | None:
    """Why no report can be written to this path, found before the command runs; None if nothing is in the way."""
    folder = os.path.dirname(path) or "."  # noqa: PTH120 - a path as the user gave it
    if os.path.isdir(path):  # noqa: PTH112
        return "it is a directory"
    if not os.path.isdir(folder):  # noqa: PTH112
        return "its directory does not exist"
    if not os.access(folder, os.W_OK | os.X_OK):
        return "this user may not write to its directory"
    return None


def write_report(path: str, facts: dict[str, Any]) -> None:
    """Write beside the path and rename, so that a reader never sees half a report."""
    folder = os.path.dirname(path) or "."  # noqa: PTH120
    descriptor, temporary = tempfile.mkstemp(prefix=".leasehold-report-", dir=folder)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump({"schema": SCHEMA, **facts}, file)
            file.write("\n")
        os.chmod(temporary, 0o666 & ~_umask())  # noqa: PTH101 - mkstemp makes it private; a report is an ordinary file
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        os.unlink(temporary)  # noqa: PTH108
        raise


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
