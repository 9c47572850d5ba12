"""How long to wait before the next try. Pure: randomness comes in as a number in [0, 1)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CONTENTION", "GRACE", "OUTAGE", "Backoff"]

GRACE = 1.0  # seconds by which a call may exceed its timeout, to learn the outcome of a request without answer


@dataclass(frozen=True, slots=True)
class Backoff:
    """A growing delay: `steps` one after the other, then the last one for ever, each with equal jitter.

    Equal jitter means a delay drawn evenly from the upper half of the step, so that contenders that failed together do
    not come back together, and none comes back at once.
    """

    steps: tuple[float, ...] = (0.010, 0.050, 0.200, 0.500)

    def delay(self, attempt: int, chance: float) -> float:
        """The pause after the attempt with this number, counted from 0; `chance` is in [0, 1)."""
        step = self.steps[min(attempt, len(self.steps) - 1)]
        return step * (0.5 + chance / 2)


CONTENTION = Backoff()  # the lock is held, and the store has no queue
OUTAGE = Backoff((0.020, 0.100, 0.500, 1.000))  # the store did not answer
