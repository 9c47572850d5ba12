"""The report about one run: a JSON file that appears whole or not at all, never on the command's stdout."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any

from leasehold.cli.output import SCHEMA

__all__ = ["write_report"]


def write_report(path: str, facts: dict[str, Any]) -> None:
    """Write it beside its place and move it there, so that a reader never sees half of it."""
    folder = os.path.dirname(path) or "."  # noqa: PTH120 - a path as the user gave it
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
