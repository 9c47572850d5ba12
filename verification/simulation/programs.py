"""What the processes of a run are for: a bit of everything, or as many updates or grants as a seed can bring.

`EVERYTHING` looks for mistakes in every way to use a lock. `UPDATES` and `GRANTS` make numbers: they do one thing again
and again, under the same faults, so that "none in a million" can be said of it. `JOBS` runs jobs once per slot.
"""

from __future__ import annotations

from dataclasses import dataclass

from verification.simulation.runner import JobRunner
from verification.simulation.workloads import Actor

__all__ = ["EVERYTHING", "GRANTS", "JOBS", "PROGRAMS", "UPDATES", "Program"]


class Updater(Actor):
    """Holds a lock and changes what it protects, several times under each lease."""

    ends_when_healed = True

    def _choices(self) -> None:
        self._deeds = [self._hold_and_update]
        self._cancellable = []

    async def _hold_and_update(self) -> None:
        name = self._mutex()
        lease = await self._acquire(self._site.client.lock(name, ttl=self._scene.ttl), 4 * self._scene.ttl)
        try:
            for _ in range(self._random.randrange(4, 12)):
                pause = self._random.random() ** 4 * self._scene.ttl
                await self._update(lease, name, pause, fenced=self._random.random() < 0.8)
        finally:
            await self._release(lease)


class Taker(Actor):
    """Takes a lock and gives it back, quickly; now and then it holds on, or leaves without a word."""

    ends_when_healed = True

    def _choices(self) -> None:
        super()._choices()
        shared = [deed for deed in self._deeds if deed == self._hold_shared][:1]  # where the store has them
        self._deeds = [*[self._take] * 12, self._drop, self._operate, *shared]
        self._cancellable = []

    async def _take(self) -> None:
        name = self._mutex()
        lock = self._site.client.lock(name, ttl=self._scene.ttl)
        for _ in range(self._random.randrange(4, 12)):
            lease = await self._acquire(lock, 2 * self._scene.ttl)
            await self._runtime.sleep(self._random.random() ** 6 * self._scene.ttl)
            await self._release(lease)


@dataclass(frozen=True, slots=True)
class Program:
    """How the processes of a run behave."""

    actor: type[Actor]
    operations: tuple[int, ...]  # of each task
    length: float = 1.0  # of the time of faults, in that of a run of everything
    pace: float = 1.0  # of the pauses between operations
    forgetful: bool = False  # the store forgets in every seed, where it can
    runs_jobs: bool = False
    remembered: float = 0.0  # seconds for which the store remembers what its processes wrote


EVERYTHING = Program(Actor, (3, 4, 5, 6))
UPDATES = Program(Updater, (30,), length=4.0, pace=0.2)
GRANTS = Program(Taker, (40,), length=4.0, pace=0.1, forgetful=True)
JOBS = Program(JobRunner, (12, 16, 20), length=2.5, runs_jobs=True, remembered=31 * 86_400.0)
PROGRAMS = {"everything": EVERYTHING, "updates": UPDATES, "grants": GRANTS, "jobs": JOBS}
