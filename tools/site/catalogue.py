"""The catalogue of failures as a page; the file itself is for programs and for those who extend it."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["catalogue_page"]

KINDS = {
    "S": "Safety",
    "L": "Liveness",
    "R": "Recovery",
    "C": "Resources",
    "I": "Bad input",
    "X": "Security",
}
HEAD = """# Catalogue of failures

Every known way to get a lock wrong, and how many tests show that it does not happen here. The names of the tests, and
why a part is not covered, are in <a href="catalogue.toml">catalogue.toml</a>.
"""


def catalogue_page(folder: Path) -> str:
    """A table for each kind of failure."""
    rows = tomllib.loads((folder / "catalogue.toml").read_text())
    parts = [HEAD]
    for letter, title in KINDS.items():
        lines = [_line(key, row) for key, row in rows.items() if key.startswith(letter)]
        if lines:
            parts.append("\n".join([f"## {title}\n", "| | what happens | tests |", "|---|---|---:|", *lines]) + "\n")
    return "\n".join(parts)


def _line(key: str, row: dict[str, object]) -> str:
    tests = row.get("test", [])
    count = len(tests) if isinstance(tests, list) else 1
    reason = "" if count else f" Not covered: {row.get('reason', row.get('later'))}"
    return f"| {key} | {row['case']}{reason} | {count} |".replace("\n", " ")
