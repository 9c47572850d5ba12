"""The results of a run, read from their files or from the compact copy beside the documents."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from verification.lab.adapters import OURS, PEERS
from verification.lab.faults import FAULTS
from verification.lab.matrix import Plan
from verification.lab.stages import STORES
from verification.lab.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["Cell", "read_compact", "read_folder", "read_folders", "write_compact"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One result."""

    plan: Plan
    verdict: str
    reason: str
    command: str
    version: str
    ttl: float
    counts: dict[str, int]
    times: dict[str, float | None]
    violations: list[dict[str, Any]]
    allowed: list[dict[str, Any]]
    timeline: dict[str, Any] | None
    before: str = ""  # what it said beside other cells, before it was run again alone

    @property
    def ran(self) -> bool:
        """Whether there are figures."""
        return bool(self.counts)

    def count(self, name: str) -> int:
        """One of its figures."""
        return self.counts.get(name, 0)


def _cell(data: dict[str, Any]) -> Cell:
    return Cell(
        Plan(**data["plan"]),
        data["verdict"],
        data["reason"],
        data["command"],
        data["version"],
        data["ttl"],
        data["counts"],
        data["times"],
        data["violations"],
        data["allowed"],
        data.get("timeline"),
        data.get("before", ""),
    )


def _place(cell: Cell) -> tuple[int, ...]:
    libraries = [OURS, *PEERS]
    plan = cell.plan
    return (
        libraries.index(plan.library),
        list(WORKLOADS).index(plan.workload),
        STORES.index(plan.store),
        FAULTS.index(plan.fault),
        plan.updates,
    )


def read_folder(folder: Path) -> list[Cell]:
    """All results of a folder, in the order of the matrix."""
    return sorted((_cell(json.loads(path.read_text())) for path in folder.glob("*.json")), key=_place)


def read_folders(folders: Iterable[Path]) -> list[Cell]:
    """The same of several, such as of the matrix and of the many updates."""
    return sorted((cell for folder in folders for cell in read_folder(folder)), key=_place)


def read_compact(path: Path) -> list[Cell]:
    """The copy that is kept with the documents, without timelines."""
    return [_cell(data) for data in json.loads(path.read_text())["cells"]]


def write_compact(cells: Iterable[Cell], path: Path) -> None:
    """One cell per line, so that a new run shows as few changed lines."""
    lines = [
        json.dumps(
            {
                "plan": cell.plan.to_dict(),
                **{name: getattr(cell, name) for name in ("verdict", "reason", "command", "version", "ttl", "before")},
                **{name: getattr(cell, name) for name in ("counts", "violations", "allowed")},
                "times": {name: value and round(value, 3) for name, value in cell.times.items()},
            }
        )
        for cell in cells
    ]
    path.write_text('{"cells": [\n' + ",\n".join(lines) + "\n]}\n")
