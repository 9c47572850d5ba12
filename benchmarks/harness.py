"""How things are measured: candidates side by side, interleaved, several rounds, a floor to compare with.

It knows nothing about locks. Machines are noisy, so a figure alone says little: what counts is the ratio to another
candidate of the same run, taken from the same stretch of time. A candidate that cannot run is a row too.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["Candidate", "Role", "Row", "Sample", "Settings", "Table", "measure", "percentile", "timed"]

MOST_ITERATIONS = 1_000_000


class Role(StrEnum):
    """What a candidate is in the comparison."""

    FLOOR = "floor"  # the smallest program that does the same store operations
    OURS = "ours"
    PEER = "peer"
    PART = "part"  # one of the things that ours consists of


class Meter(Protocol):
    """Shows how far a measurement has come."""

    def step(self, title: str, done: int, total: int) -> None:
        """`done` of `total` samples are taken."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How long and how often to measure, and where files may be put."""

    directory: Path
    rounds: int = 5
    quick: bool = False
    meter: Meter | None = None

    def pick(self, usual: Any, quick: Any) -> Any:
        """A quick run shows that everything works; its figures mean nothing."""
        return quick if self.quick else usual


@dataclass(frozen=True, slots=True)
class Sample:
    """What one round of one candidate gave: the figure that is compared, and further facts in figures."""

    value: float
    facts: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Candidate:
    """Something to measure; without `sample`, `missing` says why."""

    name: str
    role: Role
    sample: Callable[[], Sample] | None = None
    missing: str = ""
    close: Callable[[], object] | None = None


@dataclass(slots=True)
class Row:
    """A candidate's figures; none if it could not run."""

    name: str
    role: Role
    best: float | None = None
    median: float | None = None
    ratio: float | None = None  # to the floor, by the table's measure
    facts: dict[str, float] = field(default_factory=dict)  # medians over the rounds
    values: list[float] = field(default_factory=list)
    missing: str = ""


@dataclass(slots=True)
class Table:
    """One comparison."""

    title: str
    unit: str
    rows: list[Row]
    higher_is_better: bool = False
    by: str = "best"  # or "median": which figure the ratios compare
    notes: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)  # what we want of it: for the terminal, no reader's concern

    def figure(self, row: Row) -> float | None:
        """The figure that is compared."""
        return row.best if self.by == "best" else row.median

    def row(self, name: str) -> Row:
        """The row of this name."""
        return next(row for row in self.rows if row.name == name)

    def as_json(self) -> dict[str, Any]:
        """For the file."""
        return asdict(self)


def timed(name: str, role: Role, run: Callable[[int], object], settings: Settings, **more: Any) -> Candidate:
    """A candidate whose `run(n)` does n operations; n is found once so that a sample lasts long enough; value in µs."""
    wanted: float = settings.pick(0.15, 0.002)
    iterations = 0

    def clocked(count: int) -> float:
        started = time.perf_counter()
        run(count)
        return time.perf_counter() - started

    def calibrate() -> int:
        count = 1
        while (took := clocked(count)) < wanted / 4 and count < MOST_ITERATIONS:
            count = min(MOST_ITERATIONS, count * (10 if took < wanted / 40 else 2))
        return max(1, min(MOST_ITERATIONS, round(count * wanted / max(took, 1e-9))))

    def sample() -> Sample:
        nonlocal iterations
        iterations = iterations or calibrate()
        return Sample(clocked(iterations) / iterations * 1e6)

    return Candidate(name, role, sample, **more)


def measure(
    title: str,
    candidates: Sequence[Candidate],
    settings: Settings,
    *,
    unit: str = "µs per pair",
    higher_is_better: bool = False,
    by: str = "best",
) -> Table:
    """Take the rounds, A B C, A B C and so on, and compare with the first floor, or else with the first row."""
    samples: list[list[Sample]] = [[] for _ in candidates]
    total = settings.rounds * len(candidates)
    try:
        for number in range(settings.rounds):
            for place, candidate in enumerate(candidates):
                if settings.meter is not None:
                    settings.meter.step(title, number * len(candidates) + place, total)
                if candidate.sample is not None:
                    samples[place].append(candidate.sample())
    finally:
        for candidate in candidates:
            if candidate.close is not None:
                candidate.close()
    pick_best = max if higher_is_better else min
    rows = [_row(candidate, taken, pick_best) for candidate, taken in zip(candidates, samples, strict=True)]
    table = Table(title, unit, rows, higher_is_better, by)
    _compare(table)
    return table


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _row(candidate: Candidate, taken: list[Sample], pick_best: Callable[[list[float]], float]) -> Row:
    if not taken:
        return Row(candidate.name, candidate.role, missing=candidate.missing or "not measured")
    values = [sample.value for sample in taken]
    facts = {fact: statistics.median(sample.facts[fact] for sample in taken) for fact in taken[0].facts}
    return Row(candidate.name, candidate.role, pick_best(values), statistics.median(values), None, facts, values)


def _compare(table: Table) -> None:
    measured = [row for row in table.rows if row.values]
    base = next((row for row in measured if row.role is Role.FLOOR), measured[0] if measured else None)
    reference = None if base is None or len(measured) < 2 else table.figure(base)
    for row in measured:
        figure = table.figure(row)
        if reference and figure is not None:
            row.ratio = figure / reference
