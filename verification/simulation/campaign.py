"""Many seeds: run in one process or several, added up, and a failure told so that it can be seen again."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from verification.simulation.run import simulate
from verification.simulation.schedule import written_kept
from verification.simulation.shrink import shrink

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from verification.simulation.run import Outcome

__all__ = ["Totals", "commit", "replay_command", "report", "run_all", "tell_shrunk"]

COLLECT_EVERY = 50  # seeds; the collector is off while one runs
CHUNK = 20  # seeds that a process runs before it asks for more
SUMMED = (
    "steps",
    "grants",
    "losses",
    "faults",
    "updates",
    "fenced_updates",
    "unfenced_losses",
    "failovers",
    "empty_restarts",
    "runs",
    "recorded_runs",
    "repeated_runs",
    "skips",
)


def run_all(seeds: Iterable[int], store: str, program: str, jobs: int) -> Iterator[Outcome]:
    """The outcomes in the order of the seeds; endless seeds are run as long as outcomes are taken."""
    run = partial(simulate, store=store, program=program)
    if jobs > 1:
        remaining = iter(seeds)
        with ProcessPoolExecutor(jobs) as pool:
            while some := list(islice(remaining, 4 * jobs * CHUNK)):
                yield from pool.map(run, some, chunksize=CHUNK)
        return
    gc.disable()
    for count, seed in enumerate(seeds, 1):
        yield run(seed)
        if count % COLLECT_EVERY == 0:
            gc.collect()
    gc.enable()


class Totals:
    """Adds up, and shows progress."""

    def __init__(self) -> None:
        self.seeds = 0
        self.failed = 0
        self.virtual = 0.0
        self.sums = dict.fromkeys(SUMMED, 0)
        self._started = time.monotonic()
        self._told = 0.0

    def add(self, outcome: Outcome) -> None:
        """One more seed."""
        self.seeds += 1
        self.failed += bool(outcome.violations)
        self.virtual += outcome.virtual_seconds
        for name in self.sums:
            self.sums[name] += getattr(outcome, name)

    def show(self, progress: str) -> None:
        """One line at a time: over itself on a terminal, every few seconds elsewhere."""
        terminal = sys.stderr.isatty()
        now = time.monotonic()
        if now - self._told > (0.2 if terminal else 10.0):
            self._told = now
            end = "\r" if terminal else "\n"
            print(f"{progress}, {self.rate:.1f} seeds/s", file=sys.stderr, end=end, flush=True)

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return max(1e-9, time.monotonic() - self._started)

    @property
    def rate(self) -> float:
        """Seeds per second."""
        return self.seeds / self.seconds

    def close(self) -> None:
        """All of it, in words."""
        sums = ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in self.sums.items())
        print(f"{self.seeds} seeds, {self.failed} failed, {self.virtual:.0f} virtual seconds: {sums}")
        print(
            f"{self.seconds:.1f} s, {self.rate:.1f} seeds/s, {self.virtual / self.seconds:.0f} times faster than real "
            f"time, commit {commit()}"
        )


def report(outcome: Outcome, store: str, program: str) -> None:
    """Say which check failed and what happened last."""
    for line in outcome.trace:
        print(line)
    for violation in outcome.violations:
        print(f"seed {outcome.seed} violates: {violation.check}: {violation.detail}")
    print(f"commit {commit()}; replay: {replay_command(outcome.seed, store, program)}")


def tell_shrunk(outcome: Outcome, store: str, program: str, seconds: float) -> None:
    """Look for the smallest schedule that fails in the same way, and show that one."""
    print(f"looking for a smaller schedule, at most {seconds:.0f} s ...", flush=True)
    shrunk = shrink(outcome, store=store, program=program, seconds=seconds)
    before, after = outcome.schedule, shrunk.outcome.schedule
    print(
        f"shrunk from {len(before)} to {len(after)} faults and steps, {outcome.steps} to {shrunk.outcome.steps} "
        f"scheduler steps, in {shrunk.runs} runs:"
    )
    for part in after:
        print(f"  {part.name:6} {part.what}")
    for line in shrunk.outcome.trace:
        print(line)
    for violation in shrunk.outcome.violations:
        print(f"seed {outcome.seed} violates: {violation.check}: {violation.detail}")
    command = replay_command(outcome.seed, store, program)
    print(f"replay: {command} --salt {shrunk.salt} --keep {written_kept(shrunk.kept) or 'nothing'}")


def replay_command(seed: int, store: str, program: str) -> str:
    """What a person types."""
    of = "" if program == "everything" else f" --program {program}"
    return f"python -m verification.simulation --store {store}{of} --seed {seed}"


def commit() -> str:
    """Of the working copy: a seed means the same only there."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        answer = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return answer.stdout.strip()
