"""What a run of the benchmarks looks like: a table for the terminal, Markdown for the documents, and a JSON file."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
from typing import TYPE_CHECKING, Any

from benchmarks.figures import number, times
from benchmarks.plot import draw

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.harness import Row, Table

__all__ = ["as_markdown", "as_text", "facts_of_this_machine", "write_json", "write_plots"]


def as_text(table: Table) -> str:
    """For the terminal."""
    cells = _cells(table)
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = [f"{table.title} ({table.unit}, {_direction(table)})"]
    for line in cells:
        rest = "".join(f"  {cell:>{width}}" for cell, width in zip(line[1:], widths[1:], strict=True))
        lines.append(f"  {line[0]:<{widths[0]}}{rest}")
    lines += [f"  {note}" for note in table.notes]
    lines += [f"  target: {target}" for target in table.targets]
    return "\n".join(lines) + "\n"


def as_markdown(table: Table) -> str:
    """For a document."""
    head, *body = _cells(table)
    lines = [f"**{table.title}** ({table.unit}, {_direction(table)})", "", _line(head)]
    lines.append("|" + "|".join([" --- "] + [" ---: "] * (len(head) - 1)) + "|")
    lines += [_line(cells) for cells in body]
    lines += ["", *(f"- {note}." for note in table.notes)]
    return "\n".join(lines) + "\n"


def write_json(path: Path, command: str, results: Mapping[str, Sequence[Table]]) -> None:
    """Everything that was measured, with every round."""
    content = {
        "command": command,
        "machine": facts_of_this_machine(),
        "scenarios": {name: [table.as_json() for table in tables] for name, tables in results.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def write_plots(directory: Path, results: Mapping[str, Sequence[Table]]) -> None:
    """One picture for each scenario."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, tables in results.items():
        (directory / f"{name}.svg").write_text(draw(tables))


def facts_of_this_machine() -> dict[str, Any]:
    """What a reader has to know to judge the figures; nothing that names the machine."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "sqlite": sqlite3.sqlite_version,
        "load": [round(load, 1) for load in os.getloadavg()],
    }


def _cells(table: Table) -> list[list[str]]:
    facts = list(dict.fromkeys(fact for row in table.rows for fact in row.facts))
    return [["", "best", "median", "ratio", *facts], *(_row_cells(row, facts) for row in table.rows)]


def _row_cells(row: Row, facts: Sequence[str]) -> list[str]:
    if row.best is None:
        return [row.name, row.missing, *[""] * (2 + len(facts))]
    figures = [number(row.best), number(row.median), times(row.ratio)]
    return [row.name, *figures, *(number(row.facts.get(fact)) for fact in facts)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _direction(table: Table) -> str:
    better = "higher" if table.higher_is_better else "lower"
    return f"{better} is better, ratio of the {'bests' if table.by == 'best' else 'medians'}"
