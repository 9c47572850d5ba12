"""How far a run of the lab has come: one line that is written over on a terminal, one line per cell elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from verification.lab.history import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verification.lab.matrix import Plan
    from verification.lab.recorder import Recorder
    from verification.lab.verdict import Result

__all__ = ["Progress"]

REDRAW = 0.2
WIDTH = 110


class Progress:
    """Of `total` cells."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._place = 0
        self._title = ""
        self._started = self._drawn = time.monotonic()

    def begin(self, plan: Plan) -> None:
        """The next cell."""
        self._place += 1
        self._title = f"[{self._place}/{self._total}] {plan.name}"
        self._started = time.monotonic()

    def step(self, word: str, recorder: Recorder) -> None:
        """What is going on in it."""
        if sys.stdout.isatty() and time.monotonic() - self._drawn > REDRAW:
            self._drawn = time.monotonic()
            grants, losses = recorder.count(Kind.GRANTED), recorder.count(Kind.LOST)
            line = f"{self._title}: {word}, {grants} grants, {losses} losses, {self._drawn - self._started:.0f} s"
            print(f"\r{line:<{WIDTH}}", end="", flush=True)

    def more(self, count: int) -> None:
        """So many cells come in addition."""
        self._total += count

    def several(self, running: Sequence[tuple[str, float]]) -> None:
        """Those that run side by side now, and since when."""
        if sys.stdout.isatty():
            now = time.monotonic()
            line = "; ".join(f"{name} ({now - since:.0f} s)" for name, since in running)
            print(f"\r{line[:WIDTH]:<{WIDTH}}", end="", flush=True)

    def end(self, result: Result) -> None:
        """Its verdict."""
        over = f"\r{'':<{WIDTH}}\r" if sys.stdout.isatty() else ""
        print(f"{over}{self._title}: {_summary(result)}", flush=True)


def _summary(result: Result) -> str:
    if not result.counts:
        return f"{result.verdict}: {result.reason}"
    counts = result.counts
    facts = [
        f"{counts['grants']} grants" if not counts["jobs"] else f"{counts['jobs']} jobs",
        f"{counts['double holders']} double",
        f"{counts['stale writes refused']} refused",
        f"lost {counts['lost with fence']}/{counts['fenced updates']} fenced",
        f"{counts['lost without fence']}/{counts['unfenced updates']} unfenced",
        f"{result.seconds:.0f} s",
    ]
    why = [f"{each['check']} x{each['count']}: {each['detail']}" for each in result.violations]
    if result.verdict == "void":
        why.append(result.reason)
    return f"{result.verdict}, {', '.join(facts)}{''.join(f'{chr(10)}    {each}' for each in why)}"
