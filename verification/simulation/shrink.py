"""Shrinking a failure: which few faults and steps of its schedule are enough to see the same check fail.

Delta debugging: leave out half of what is left, a quarter, and so on down to single parts, and keep every schedule that
still violates the same check. A run with fewer parts makes fewer draws, so the rest may miss each other; each smaller
schedule is therefore tried with several salts, which are other orders of events.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verification.simulation.run import simulate
from verification.simulation.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from verification.simulation.run import Outcome

__all__ = ["Shrunk", "shrink", "smallest"]

SALTS = 8  # orders of events tried for each smaller schedule
SECONDS = 30.0  # after which the smallest so far is taken


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest schedule that was found, and the run that it gives."""

    kept: tuple[str, ...]
    salt: int
    outcome: Outcome
    runs: int


def shrink(found: Outcome, *, store: str, program: str = "everything", seconds: float = SECONDS) -> Shrunk:
    """The same check has to fail; a failure of another one is another bug."""
    checks = {violation.check for violation in found.violations}
    names = tuple(part.name for part in found.schedule)
    best = Shrunk(names, 0, found, 0)
    ends, runs = time.monotonic() + seconds, 0

    def still_fails(kept: Sequence[str]) -> tuple[str, ...] | None:
        nonlocal best, runs
        for salt in range(SALTS):
            if time.monotonic() > ends:
                return None
            runs += 1
            outcome = simulate(found.seed, store=store, program=program, schedule=Schedule(kept, salt))
            if checks & {violation.check for violation in outcome.violations}:
                best = Shrunk(tuple(part.name for part in outcome.schedule), salt, outcome, runs)
                return best.kept
        return None

    smallest(names, still_fails)
    return Shrunk(best.kept, best.salt, best.outcome, runs)


def smallest(names: Sequence[str], still_fails: Callable[[Sequence[str]], tuple[str, ...] | None]) -> tuple[str, ...]:
    """A list of which no single part can be left out, unless time ran out.

    `still_fails` says which of the parts took place before the failure, or None if there was none.
    """
    left = tuple(names)
    size = max(1, len(left) // 2)
    while left:
        smaller = next(
            (reached for rest in _without_each(left, size) if (reached := still_fails(rest)) is not None), None
        )
        if smaller is not None:
            left = smaller
            size = max(1, min(size, len(left) // 2))
        elif size == 1:
            break
        else:
            size //= 2
    return left


def _without_each(names: tuple[str, ...], size: int) -> list[tuple[str, ...]]:
    """The list without each of its pieces; the last pieces first, because what came late is rarely the cause."""
    return [names[:start] + names[start + size :] for start in reversed(range(0, len(names), size))]
